"""Tables in CSV or Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.errors import ConfigError, MissingExtra, UnknownName, brief
from fedguard.tasks.data.assembly import Part, assembled, prepared
from fedguard.tasks.data.cells import labels_like, read_like, texts
from fedguard.tasks.data.files import found, why_not

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
        public: another such file, of rows that need no protection: mean, deviation, range, categories, classes, and which
            columns hold numbers are taken from it.
        test: the share of the rows kept for testing.
    """

    name = "table"
    source = "comma-separated values (RFC 4180), or Apache Parquet"
    outside = True

    file: str
    label: str
    client: str | None = None
    public: str | None = None
    test: ProperFraction = 0.2

    @property
    def preparation(self) -> Preparation:
        if self.public is None:
            what = "scale, range, categories and classes"
            return Preparation("records", what, "Give public: a file of rows that need no protection.")
        return prepared(None, None, self.public)

    def load(self) -> Dataset:
        path, beside = found(self.file, "file"), [self.label, *([self.client] if self.client else [])]
        if self.public is None:
            frame = _complete(path, beside)
            client = frame[self.client].astype(str).to_numpy(str) if self.client else None
            labels, features = _labels(frame[self.label]), frame.drop(columns=beside)
            return assembled(str(path), Part(_features(path, features), labels, client), share=self.test)
        frame = _complete(path, beside, as_text=True)
        other = found(self.public, "file")
        shown = _complete(other, [self.label])
        known = shown.drop(columns=beside, errors="ignore")
        names = _labels(shown[self.label])
        features = read_like(path, frame.drop(columns=beside), known)
        labels = labels_like(path, frame[self.label], names, shown[self.label])
        client = texts(frame[self.client]).to_numpy(str) if self.client else None
        return assembled(
            str(path),
            Part(_features(path, features, read_like(other, known, known)), labels, client),
            share=self.test,
            public=Part(_features(other, known), names),
        )


def _complete(path: Path, beside: Iterable[str], *, as_text: bool = False) -> pd.DataFrame:
    """The table, which has the columns ``beside`` and a value in each cell.

    Args:
        as_text: leave the cells of a CSV file as they stand there: what kind its columns are is no matter of its rows.

    Raises:
        UnknownName, ConfigError: one of them is missing.
    """
    frame = _frame(path, as_text)
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
        _check_values(path, str(name), frame[name])
    return frame


def _check_values(path: Path, name: str, column: pd.Series[Any]) -> None:
    """Refuse what is neither a finite number nor a text, as columns of Parquet may be."""
    from pandas.api.types import is_float_dtype, is_object_dtype, is_scalar

    if is_float_dtype(column):
        odd = np.flatnonzero(np.isinf(column.to_numpy(np.float64)))
    elif is_object_dtype(column):
        odd = np.flatnonzero(~column.map(is_scalar).to_numpy(bool))
    else:
        return
    if len(odd):
        got = brief(column.iloc[[odd[0]]].tolist()[0])
        raise ConfigError(
            f"{path}: expected finite numbers or texts; column {name!r} has {got} in row {odd[0] + 1} below the header."
        )


def _frame(path: Path, as_text: bool) -> pd.DataFrame:
    try:
        import pandas as pd

        if path.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet.")
        frame: pd.DataFrame = _csv(path, as_text) if path.suffix == ".csv" else pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtra("table", error.name or "pyarrow", "data") from None
    except (ValueError, OSError, NotImplementedError, KeyError) as error:
        raise ConfigError(f"{path}: cannot be read: {why_not(path, error)}.") from None
    _check_header(path, list(map(str, frame.columns)))
    return frame


def _csv(path: Path, as_text: bool) -> pd.DataFrame:
    """The table under the header as it stands; left alone, pandas renames the second of two columns of one name."""
    import pandas as pd

    # With the row below it: were that longer than the header, pandas would take the first column for names of the rows.
    header = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False).iloc[0]
    return pd.read_csv(path, low_memory=False, dtype=str if as_text else None).set_axis(header.tolist(), axis=1)


def _check_header(path: Path, names: list[str]) -> None:
    if "" in names:
        raise ConfigError(
            f"{path}: expected a name for each column; column {names.index('') + 1} has none. Name it, or leave it out: pandas "
            "writes row numbers so, without index=False."
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{path}: expected columns of different names; {brief(twice[0])} stands there twice.")
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        raise ConfigError(f"{path}: expected columns that are separated by commas; the header is {brief(names[0])}.")


def _features(path: Path, frame: pd.DataFrame, like: pd.DataFrame | None = None) -> NDArray[np.float64]:
    """float64 ``[N, features]``: numbers as they are, texts as indicators of the categories that ``like`` has, or the frame."""
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if frame.columns.empty:
        raise ConfigError(f"{path}: expected columns beside that of the label; got none.")
    if like is not None and list(like.columns) != list(frame.columns):
        raise ConfigError(f"{path}: expected the public rows' columns {_few(like.columns)}; got {_few(frame.columns)}.")
    columns: list[pd.DataFrame] = []
    for name in frame.columns:
        column, known = frame[name], frame[name] if like is None else like[name]
        if is_numeric_dtype(known) or is_bool_dtype(known):
            if not (is_numeric_dtype(column) or is_bool_dtype(column)):
                raise ConfigError(
                    f"{path}: expected numbers in column {str(name)!r}, as in the public rows; got texts."
                )
            columns.append(column.to_frame())
            continue
        texts, categories = column.astype(str), sorted(known.astype(str).unique())
        if like is None:
            _check_texts(path, str(name), texts)
        elif len(unseen := sorted(set(texts) - set(categories))):
            raise ConfigError(
                f"{path}: expected the public rows' categories in column {str(name)!r}; got {brief(unseen[0])} as well. Add a "
                "public row with it."
            )
        columns.append(pd.get_dummies(pd.Categorical(texts, categories), prefix=str(name)))
    return pd.concat(columns, axis=1).to_numpy(np.float64)


def _few(columns: Iterable[Any]) -> str:
    names = [str(one) for one in columns]
    return ", ".join(names[:6]) + ", ..." * (len(names) > 6)


def _check_texts(path: Path, name: str, texts: pd.Series[Any]) -> None:
    """Refuse what is no category: names and times, which differ in each row, and numbers with a slip among them."""
    import pandas as pd

    slips = np.flatnonzero(pd.to_numeric(texts, errors="coerce").isna())
    if 0 < len(slips) < len(texts) / 2:
        got = brief(texts.iloc[slips[0]])
        raise ConfigError(
            f"{path}: expected numbers in column {name!r}, as in most rows; got {got} in row {slips[0] + 1} below the header."
        )
    different = texts.nunique()
    if different > min(MOST_TEXTS, max(FEW_TEXTS, len(texts) // 2)):
        raise ConfigError(
            f"{path}: expected a category, with at most {MOST_TEXTS} different texts and two rows for each; column {name!r} "
            f"has {different} in {len(texts)} rows, such as {brief(texts.iloc[0])}. Leave it out, or make numbers of it."
        )


def _labels(column: pd.Series[Any]) -> NDArray[Any]:
    from pandas.api.types import is_numeric_dtype

    values = column.to_numpy()
    if not is_numeric_dtype(column):
        return values.astype(str)
    whole = values.astype(np.float64)
    return whole.astype(np.int64) if (whole == np.floor(whole)).all() else values.astype(str)
