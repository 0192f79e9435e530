"""Tables in CSV or Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, MissingExtra, UnknownName
from fedguard.tasks.data.assembly import Part, assembled, found

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Table(Data):
    """A row for each example, a column for each feature, one for the label. ``file`` ends in ``.csv`` or ``.parquet``.

    Columns of texts become one column of 0 and 1 for each of their values; all are then standardised.

    Args:
        file: the file.
        label: the column that holds the label.
        client: the column that names the natural client of each row, for the partition ``natural``; it is no feature.
        test: the share of the rows kept for testing.
    """

    name = "table"
    source = "comma-separated values (RFC 4180), or Apache Parquet"

    file: str
    label: str
    client: str | None = None
    test: float = 0.2

    def load(self) -> Dataset:
        frame = self._read()
        for column in (self.label, *([self.client] if self.client else [])):
            if column not in frame.columns:
                raise UnknownName("column", column, [str(name) for name in frame.columns], self.file)
        features = frame.drop(columns=[self.label, *([self.client] if self.client else [])])
        if not len(features.columns):
            raise ConfigError(f"{self.file}: expected columns beside {self.label!r}; got none.")
        empty = (
            features.columns[features.isna().any()].tolist()
            + frame.columns[frame.columns == self.label][frame[[self.label]].isna().any()].tolist()
        )
        if empty:
            raise ConfigError(
                f"{self.file}: expected a value in each row; column {empty[0]!r} has empty ones. Fill or drop them."
            )
        import pandas as pd

        x = pd.get_dummies(features).to_numpy(np.float32)
        client = frame[self.client].astype(str).to_numpy(str) if self.client else None
        return assembled(self.file, Part(x, _labels(frame[self.label]), client), share=self.test)

    def _read(self) -> pd.DataFrame:
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("table", "pandas", "data") from None
        path = found(self.file, "file")
        if path.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet.")
        try:
            frame: pd.DataFrame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        except (ValueError, OSError) as error:
            raise ConfigError(f"{path}: cannot be read: {' '.join(str(error).split())}.") from None
        return frame


def _labels(column: pd.Series) -> np.ndarray:  # type: ignore[type-arg]
    values = column.to_numpy()
    whole = np.issubdtype(values.dtype, np.number) and bool((values == np.floor(values)).all())
    return values.astype(np.int64) if whole else values.astype(str)
