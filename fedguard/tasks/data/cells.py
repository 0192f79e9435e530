"""Cells of a private table, each read by itself, as the public rows beside it are read.

The kind of a column must not depend on the private rows: one text among its numbers would turn all of them into texts. The
public rows therefore decide what a column holds, and each private cell is read as that kind or refused.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, brief

if TYPE_CHECKING:
    import pandas as pd

_TRUTH = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}


def labels_like(path: Path, column: pd.Series[Any], known: NDArray[Any], shown: pd.Series[Any]) -> NDArray[Any]:
    """The private labels as the public ones are: numbers, whole ones as int64, or texts.

    Args:
        known: the public labels as they are taken.
        shown: and as their file has them.

    Raises:
        ConfigError: a label is no finite number, or none of the whole ones, where the public labels are.
    """
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(shown):
        return texts(column).to_numpy(str)
    values = numbers(path, column, codes=True).to_numpy(np.float64)
    if known.dtype.kind != "i":
        return values.astype(str)
    if not is_whole(values):
        odd = np.flatnonzero(values != np.floor(values))
        raise ConfigError(
            f"{path}: expected whole numbers for labels, as in the public rows; got {values[odd[0]]:g} in row {odd[0] + 1} "
            "below the header."
        )
    return values.astype(np.int64)


def is_whole(values: NDArray[Any]) -> bool:
    """Whether all are whole numbers."""
    return bool((values.astype(np.float64) == np.floor(values.astype(np.float64))).all())


def numbers(path: Path, column: pd.Series[Any], *, codes: bool = False) -> pd.Series[Any]:
    """float64, cell by cell; True is 1.

    Args:
        codes: whether numbers may have a 0 in front, as long as each is written in one way.

    Raises:
        ConfigError: a cell is no finite number, or a code such as 07, which is not the number 7 of the public rows.
    """
    import pandas as pd

    found = pd.to_numeric(column.map(lambda cell: _TRUTH.get(str(cell), cell)), errors="coerce").astype(np.float64)
    odd = np.flatnonzero(~np.isfinite(found.to_numpy()))
    if len(odd):
        raise ConfigError(
            f"{path}: expected numbers in column {str(column.name)!r}, as in the public rows; got "
            f"{brief(column.iloc[[odd[0]]].tolist()[0])} in row {odd[0] + 1} below the header."
        )
    written = column.map(str)
    for row in np.flatnonzero(written.str.fullmatch(r"[-+]?0\d+")):
        others = set(written[found == found.iloc[row]])
        if len(others) > 1 or not codes:
            raise ConfigError(
                f"{path}: expected numbers in column {str(column.name)!r}, as in the public rows; got "
                f"{' and '.join(map(brief, sorted(others)[:2]))}, a code rather than a number. Write each number in one way, "
                "without 0 in front, or name the column in categories."
            )
    return found


def plain_text(cell: str) -> str:
    """A text without surrounding space, with each accented letter as one character."""
    return unicodedata.normalize("NFC", cell.strip())


def texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Texts, cell by cell: a whole number is written as one, whatever the others in its column made of it."""
    return column.map(_as_text)


def _as_text(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float | np.floating) and float(cell).is_integer() else str(cell)
