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

if TYPE_CHECKING:
    import pandas as pd

#: A column with more different texts than this names its rows rather than telling of them.
MOST_TEXTS = 1000


@dataclass(frozen=True, kw_only=True)
class Table(Data):
    """A row for each example, a column for each feature, one for the label. ``file`` ends in ``.csv`` or ``.parquet``.

    A column of texts becomes one column of 0 and 1 for each of its values; all are then standardised. Labels are texts, or
    the whole numbers 0 ... C-1.

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
        empty = frame.columns[frame.isna().any()].tolist()
        if empty:
            raise ConfigError(
                f"{path}: expected a value in each row; column {empty[0]!r} has empty ones. Fill or drop them."
            )
        client = frame[self.client].astype(str).to_numpy(str) if self.client else None
        x = _features(path, frame.drop(columns=beside))
        return assembled(str(path), Part(x, _labels(frame[self.label]), client), share=self.test)


def _frame(path: Path) -> pd.DataFrame:
    try:
        import pandas as pd

        if path.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet.")
        frame: pd.DataFrame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtra("table", error.name or "pyarrow", "data") from None
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(error).split())}.") from None
    return frame


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
            continue
        different = column.astype(str).nunique()
        if different > MOST_TEXTS:
            raise ConfigError(
                f"{path}: expected at most {MOST_TEXTS} different texts in a column; {name!r} has {different}. Leave it "
                "out, or make numbers of it."
            )
        columns.append(pd.get_dummies(column.astype(str), prefix=str(name)))
    return pd.concat(columns, axis=1).to_numpy(np.float64)


def _labels(column: pd.Series[Any]) -> NDArray[Any]:
    from pandas.api.types import is_numeric_dtype

    values = column.to_numpy()
    if not is_numeric_dtype(column):
        return values.astype(str)
    whole = values.astype(np.float64)
    return whole.astype(np.int64) if (whole == np.floor(whole)).all() else values.astype(str)
