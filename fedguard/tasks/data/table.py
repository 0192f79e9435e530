"""Tables in CSV or Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, MissingExtra, UnknownName
from fedguard.tasks.data.assembly import Part, assembled, check_test, found
from fedguard.tasks.own import oneline

if TYPE_CHECKING:
    import pandas as pd

#: A column with more different texts than this names its rows rather than telling of them; so does one with more than half as
#: many as there are rows, unless they are few.
MOST_TEXTS, FEW_TEXTS = 1000, 10


@dataclass(frozen=True, kw_only=True)
class Table(Data):
    """A row for each example, a column for each feature, one for the label. ``file`` ends in ``.csv`` or ``.parquet``.

    A column of texts becomes one column of 0 and 1 for each of its values; all are then standardised. One that is no category
    is refused: names, times, numbers with a text among them. Labels are texts, or the whole numbers 0 ... C-1.

    Args:
        file: the file.
        label: the column that holds the label.
        client: the column that names the natural client of each row, for the partition ``natural``; it is no feature.
        test: the share of the rows kept for testing.
    """

    name = "table"
    source = "comma-separated values (RFC 4180), or Apache Parquet"
    outside = True

    file: str
    label: str
    client: str | None = None
    test: float = 0.2

    def __post_init__(self) -> None:
        check_test(self.name, self.test)

    def load(self) -> Dataset:
        path = found(self.file, "file")
        frame = _frame(path)
        beside = [self.label, *([self.client] if self.client else [])]
        for column in beside:
            if column not in frame.columns:
                raise UnknownName("column", column, map(str, frame.columns), str(path))
        for name in frame.columns:
            empty = np.flatnonzero(frame[name].isna())
            if len(empty):
                raise ConfigError(
                    f"{path}: expected a value in each row; column {str(name)!r} has none in {len(empty)}, first in row "
                    f"{empty[0] + 1} below the header. Empty, NA, null, None and nan are none. Fill or drop them."
                )
        client = frame[self.client].astype(str).to_numpy(str) if self.client else None
        x = _features(path, frame.drop(columns=beside))
        return assembled(str(path), Part(x, _labels(frame[self.label]), client), share=self.test)


def _frame(path: Path) -> pd.DataFrame:
    try:
        import pandas as pd

        if path.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet.")
        frame: pd.DataFrame = _csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtra("table", error.name or "pyarrow", "data") from None
    except (ValueError, OSError, NotImplementedError, KeyError) as error:
        raise ConfigError(f"{path}: cannot be read: {oneline(error)}.") from None
    _check_header(path, list(map(str, frame.columns)))
    return frame


def _csv(path: Path) -> pd.DataFrame:
    """The table under the header as it stands; left alone, pandas renames the second of two columns of one name."""
    import pandas as pd

    # With the row below it: were that longer than the header, pandas would take the first column for names of the rows.
    header = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False).iloc[0]
    return pd.read_csv(path, low_memory=False).set_axis(header.tolist(), axis=1)


def _check_header(path: Path, names: list[str]) -> None:
    if "" in names:
        raise ConfigError(
            f"{path}: expected a name for each column; column {names.index('') + 1} has none. Name it, or leave it out: pandas "
            "writes row numbers so, without index=False."
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{path}: expected columns of different names; {twice[0]!r} stands there twice.")
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        raise ConfigError(f"{path}: expected columns that are separated by commas; the header is {names[0]!r}.")


def _features(path: Path, frame: pd.DataFrame) -> NDArray[np.float64]:
    """float64 ``[N, features]``: numbers as they are, texts as indicators."""
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if frame.columns.empty:
        raise ConfigError(f"{path}: expected columns beside that of the label; got none.")
    columns: list[pd.DataFrame] = []
    for name in frame.columns:
        column = frame[name]
        if is_numeric_dtype(column) or is_bool_dtype(column):
            columns.append(column.to_frame())
        else:
            texts = column.astype(str)
            _check_texts(path, str(name), texts)
            columns.append(pd.get_dummies(texts, prefix=str(name)))
    return pd.concat(columns, axis=1).to_numpy(np.float64)


def _check_texts(path: Path, name: str, texts: pd.Series[Any]) -> None:
    """Refuse what is no category: names and times, which differ in each row, and numbers with a slip among them."""
    import pandas as pd

    slips = np.flatnonzero(pd.to_numeric(texts, errors="coerce").isna())
    if 0 < len(slips) < len(texts) / 2:
        raise ConfigError(
            f"{path}: expected numbers in column {name!r}, as in most rows; got {texts.iloc[slips[0]]!r} in row {slips[0] + 1} "
            "below the header."
        )
    different = texts.nunique()
    if different > min(MOST_TEXTS, max(FEW_TEXTS, len(texts) // 2)):
        raise ConfigError(
            f"{path}: expected a category, with at most {MOST_TEXTS} different texts and two rows for each; column {name!r} "
            f"has {different} in {len(texts)} rows, such as {texts.iloc[0]!r}. Leave it out, or make numbers of it."
        )


def _labels(column: pd.Series[Any]) -> NDArray[Any]:
    from pandas.api.types import is_numeric_dtype

    values = column.to_numpy()
    if not is_numeric_dtype(column):
        return values.astype(str)
    whole = values.astype(np.float64)
    return whole.astype(np.int64) if (whole == np.floor(whole)).all() else values.astype(str)
