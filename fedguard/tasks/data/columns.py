"""The kind of each column of a table, numbers or categories; columns that are not clearly either are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, UnknownName, brief
from fedguard.tasks.data.cells import numbers, texts
from fedguard.tasks.data.values import BEYOND
from fedguard.tasks.data.writings import AMONG, FEW_TEXTS, STORED, TIMES, all_days, detect_text_kind

if TYPE_CHECKING:
    import pandas as pd

#: A column with more different texts than this names its rows rather than telling of them; so does one with more than half as
#: many as there are rows, unless they are few.
MOST_TEXTS = 1000
#: Characters of a name that are shown.
LONGEST_SHOWN = 40


@dataclass(frozen=True)
class Column:
    """A column of features.

    Attributes:
        categories: its texts in order, each of which becomes a column of 0 and 1; None where it holds numbers.
    """

    name: str
    categories: tuple[str, ...] | None = None

    def __str__(self) -> str:
        if self.categories is None:
            return f"{self.name}: numbers"
        return f"{self.name}: {len(self.categories)} categories, a column of 0 and 1 for each: {few(self.categories)}"

    def read(self, path: Path, cells: pd.Series[Any]) -> pd.Series[Any]:
        """The cells of other rows, each by itself: float64, or texts.

        Raises:
            ConfigError: one is no finite number where this column holds numbers.
        """
        return numbers(path, cells) if self.categories is None else texts(cells)


def few(names: Iterable[Any]) -> str:
    """The first of them, and whether there are more."""
    shown = [one if len(one) <= LONGEST_SHOWN else f"{one[:LONGEST_SHOWN]}..." for one in map(str, names)]
    return ", ".join(shown[:6]) + ", ..." * (len(shown) > 6)


def tell_apart(low: float, high: float) -> str:
    """Smallest and largest value, with as many digits as tell them apart, six at least."""
    digits = next((one for one in range(6, 17) if low == high or f"{low:.{one}g}" != f"{high:.{one}g}"), 17)
    if digits > 6:  # then without powers of ten
        digits = max(digits, min(17, len(f"{max(abs(low), abs(high)):.0f}")))
    return f"{low:.{digits}g} to {high:.{digits}g}"


def columns_of(path: Path, frame: pd.DataFrame, categories: Sequence[str] = ()) -> list[Column]:
    """What the columns of a table hold.

    Args:
        categories: columns of categories, whatever their cells look like.

    Raises:
        UnknownName: no such column among them.
        ConfigError: a column is no category, and no column of numbers.
    """
    if frame.columns.empty:
        raise ConfigError(f"{path}: expected columns beside the label's; got none.")
    for name in categories:
        if name not in frame.columns:
            raise UnknownName("column", name, map(str, frame.columns), f"{path}, categories")
    return [_column(path, str(name), frame[name], name in categories) for name in frame.columns]


def _column(path: Path, name: str, cells: pd.Series[Any], declared: bool) -> Column:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not declared and (is_numeric_dtype(cells) or is_bool_dtype(cells)):
        _check_numbers(path, name, cells)
        return Column(name)
    found = texts(cells)
    counts = dict(found.value_counts(sort=False))
    called = cells.dtype == "category" and all(text.isdigit() for text in counts)
    if not (declared or called):
        _check_texts(path, name, found, counts)
    if len(counts) > min(MOST_TEXTS, max(FEW_TEXTS, len(found) // 2)):
        raise ConfigError(
            f"{path}: expected a category, with at most {MOST_TEXTS} different texts and two rows for each; column {name!r} "
            f"has {len(counts)} in {len(found)} rows, such as {brief(found.iloc[0])}. Leave it out, or make numbers of it."
        )
    return Column(name, tuple(sorted(counts)))


def _check_numbers(path: Path, name: str, cells: pd.Series[Any]) -> None:
    """Refuse whole numbers that look alike as floats, and days such as 20240531, between which there are no equal steps."""
    from pandas.api.types import is_integer_dtype

    if not is_integer_dtype(cells):
        return
    whole = cells.unique().tolist()
    if len({float(one) for one in whole}) < len(whole):
        raise beyond_floats(path, name)
    if all_days(whole):
        raise _of_time(path, name, whole[0])


def beyond_floats(path: Path, name: str) -> ConfigError:
    return ConfigError(
        f"{path}: expected numbers or texts in column {name!r}; got {BEYOND}. If they name rows, leave them out."
    )


def _check_texts(path: Path, name: str, found: pd.Series[Any], counts: Mapping[str, int]) -> None:
    """Refuse texts that are numbers or times, in whatever writing."""
    import pandas as pd

    slips = np.flatnonzero(pd.to_numeric(found, errors="coerce").isna())
    if 0 < len(slips) < len(found) / 2:
        got = brief(found.iloc[slips[0]])
        raise ConfigError(
            f"{path}: expected numbers in column {name!r}, as in most rows; got {got} in row {slips[0] + 1} below the header. "
            "Fix them; if all are categories, such as codes, name the column in categories."
        )
    what, one = detect_text_kind(counts) or ("", "")
    if what == TIMES:
        raise _of_time(path, name, one)
    if what:
        remedy = {AMONG: "Write numbers alone, or leave the column out", STORED: "Store them as numbers: astype(float)"}
        raise ConfigError(
            f"{path}: expected numbers as 1234.5 or categories in column {name!r}; got {what}, such as {brief(one)}. "
            f"{remedy.get(what, 'Write them with a point and without unit, separators or sign of percent')}; if they are "
            "categories, name the column in categories."
        )


def _of_time(path: Path, name: str, one: object) -> ConfigError:
    return ConfigError(
        f"{path}: expected numbers or categories in column {name!r}; got dates or times, such as {brief(one)}. Make numbers "
        "of them, such as days since the first, or leave the column out; if they are categories, name it in categories."
    )


def indicators(path: Path, frame: pd.DataFrame, columns: Sequence[Column]) -> NDArray[np.float64]:
    """float64 ``[N, features]``: numbers as they are, texts as indicators of the categories.

    Raises:
        ConfigError: other columns, or a text that is none of the categories.
    """
    import pandas as pd

    if list(map(str, frame.columns)) != [one.name for one in columns]:
        raise ConfigError(
            f"{path}: expected the public rows' columns {few(one.name for one in columns)}; got {few(frame.columns)}."
        )
    made: list[pd.DataFrame] = []
    for column, name in zip(columns, frame.columns, strict=True):
        if column.categories is None:
            made.append(frame[name].to_frame())
            continue
        found = texts(frame[name])
        if unseen := sorted(set(found) - set(column.categories)):
            raise ConfigError(
                f"{path}: expected the public rows' categories in column {column.name!r}; got {brief(unseen[0])} as well. Add "
                "a public row with it."
            )
        made.append(pd.get_dummies(pd.Categorical(found, list(column.categories)), prefix=column.name))
    return pd.concat(made, axis=1).to_numpy(np.float64)
