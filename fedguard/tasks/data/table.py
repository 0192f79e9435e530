"""Tables in CSV or Parquet files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.errors import ConfigError, MissingExtra, UnknownName, brief
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset, describe_preparation
from fedguard.tasks.data.cells import is_whole, labels_like, plain_text, texts
from fedguard.tasks.data.columns import Column, beyond_floats, columns_of, few, indicators, tell_apart
from fedguard.tasks.data.files import check_text, require_path, sniff_format, why_not
from fedguard.tasks.data.writings import AMONG, FEW_TEXTS, STORED, all_days, detect_text_kind

if TYPE_CHECKING:
    import pandas as pd

#: Whether an index that holds something was taken for numbers of rows, in `DataFrame.attrs`.
_LEFT_OUT = "left out"


@dataclass(frozen=True, kw_only=True)
class Table(Data):
    """A row for each example, a column for each feature, one for the label. ``file`` ends in ``.csv`` or ``.parquet``.

    A column of texts becomes one column of 0 and 1 for each of its values; all are then standardized. Space around a text is
    taken off. A column that is no category is refused: names, dates and times, numbers with a text among them or in another
    writing (``3,14``, ``12 kg``, ``40 %``). Labels are texts, but no such numbers or dates, or the whole numbers 0 ... C-1. A
    named index of a Parquet file is a column.

    Args:
        file: the file.
        label: the column that holds the label.
        client: the column that names the natural client of each row, for the partition ``natural``; it is no feature.
        categories: columns whose cells are categories though they look like numbers or dates, such as ``10 mg`` or a code;
            the label's are classes then.
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
    categories: tuple[str, ...] = ()
    public: str | None = None
    test: ProperFraction = 0.2

    @property
    def preparation(self) -> Preparation:
        if self.public is None:
            what = "scale, range, categories and classes"
            return Preparation("records", what, "Give public: a file of rows that need no protection.")
        return describe_preparation(None, None, self.public)

    @property
    def _beside(self) -> list[str]:
        """The columns that are no features."""
        return [self.label, *([self.client] if self.client else [])]

    @property
    def _features(self) -> list[str]:
        """The feature columns of categories."""
        return [name for name in self.categories if name != self.label]

    def _read_labels(self, path: Path, frame: pd.DataFrame) -> NDArray[Any]:
        column = frame[self.label]
        return texts(column).to_numpy(str) if self.label in self.categories else _labels(path, column)

    def load(self) -> Dataset:
        path = require_path(self.file, "file")
        if self.public is None:
            frame = _complete(path, self._beside, self.categories)
            client = texts(frame[self.client]).to_numpy(str) if self.client else None
            labels, features = self._read_labels(path, frame), frame.drop(columns=self._beside)
            x = indicators(path, features, columns_of(path, features, self._features))
            return assemble_dataset(str(path), RawExamples(x, labels, client), share=self.test)
        frame, other = _complete(path, self._beside, None), require_path(self.public, "file")
        shown = _complete(other, [self.label], self.categories)
        known, names = shown.drop(columns=self._beside, errors="ignore"), self._read_labels(other, shown)
        columns = columns_of(other, known, self._features)
        named = texts(shown[self.label]) if self.label in self.categories else shown[self.label]
        labels = labels_like(path, frame[self.label], names, named)
        client = texts(frame[self.client]).to_numpy(str) if self.client else None
        return assemble_dataset(
            str(path),
            RawExamples(_read_rows(path, frame.drop(columns=self._beside), columns), labels, client),
            share=self.test,
            public=RawExamples(_read_rows(other, known, columns), names),
        )

    def describe(self) -> Iterator[str]:
        path = require_path(self.file if self.public is None else self.public, "file")
        frame = _complete(path, [self.label], self.categories)
        yield f"{self.label}: the label: {few(sorted(set(self._read_labels(path, frame).tolist())))}"
        if self.client:
            yield f"{self.client}: the client"
        features = frame.drop(columns=self._beside, errors="ignore")
        for column in columns_of(path, features, self._features):
            cells = features[column.name]
            yield f"{column}" + (f" from {tell_apart(cells.min(), cells.max())}" if column.categories is None else "")
        if frame.attrs.get(_LEFT_OUT):
            yield "index without a name: whole numbers that differ, left out as numbers of rows"


def _read_rows(path: Path, frame: pd.DataFrame, columns: Sequence[Column]) -> NDArray[np.float64]:
    """Read further rows by the kinds of columns that other rows have determined."""
    names = {one.name: one for one in columns}
    read = {name: names[name].read(path, frame[name]) for name in frame.columns if name in names}
    return indicators(path, frame.assign(**read), columns)


def _complete(path: Path, beside: Collection[str], as_text: Sequence[str] | None) -> pd.DataFrame:
    """The table, which has the columns ``beside`` and a value in each cell.

    Args:
        as_text: columns with cells left as they are in a CSV file; None for all: these rows then do not decide the kind of a
            column.

    Raises:
        UnknownName, ConfigError: one of them is missing.
    """
    frame = _frame(path, as_text)
    for name in frame.columns:
        frame[name] = _plain(path, str(name), frame[name])
    _require_columns(path, frame, beside)
    if (
        path.suffix == ".csv" and as_text is not None and {*as_text} <= {*frame.columns}
    ):  # else a name is wrong, which comes first
        _check_codes(path, frame, beside, as_text)
    _check_cells(path, frame)
    return frame


def read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """These columns of a table, with cells of a CSV file as texts, and a value in each.

    Raises:
        UnknownName, ConfigError: one of them is missing.
    """
    frame = _frame(path, None)
    _require_columns(path, frame, columns)
    found = frame[list(columns)].apply(lambda column: _plain(path, str(column.name), column))
    _check_cells(path, found)
    return found


def _require_columns(path: Path, frame: pd.DataFrame, columns: Collection[str]) -> None:
    for column in columns:
        if column not in frame.columns:
            raise UnknownName("column", column, map(str, frame.columns), str(path))


def _check_cells(path: Path, frame: pd.DataFrame) -> None:
    """Raise `ConfigError` where a cell is empty or holds no finite number."""
    from pandas.api.types import is_float_dtype

    for name in frame.columns:
        empty = np.flatnonzero(frame[name].isna())
        if len(empty):
            begins = str(frame.iloc[empty[0], 0])
            remedy = (
                f"The row is a comment, {brief(begins)}: leave it out."
                if begins.startswith(("#", "%", "//"))
                else "Empty, NA, null, None and nan are none. Fill or drop them."
            )
            raise ConfigError(
                f"{path}: expected a value in each row; column {str(name)!r} has none in {len(empty)}, first in row "
                f"{empty[0] + 1} below the header. {remedy}"
            )
        if is_float_dtype(frame[name]) and len(odd := np.flatnonzero(np.isinf(frame[name].to_numpy(np.float64)))):
            raise ConfigError(
                f"{path}: expected finite numbers or texts; column {str(name)!r} has {frame[name].iloc[odd[0]]} in row "
                f"{odd[0] + 1} below the header."
            )


def _plain(path: Path, name: str, column: pd.Series[Any]) -> pd.Series[Any]:
    """The column with texts without space around them, empty ones missing, and decimal numbers as float64.

    Raises:
        ConfigError: a cell is neither a number nor a text, as in columns of Parquet may be.
    """
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_object_dtype, is_string_dtype

    if is_numeric_dtype(column) or is_bool_dtype(column):
        return column
    if column.dtype == "category":
        return _plain(path, name, column.astype(column.cat.categories.dtype)).astype("category")
    if not (is_object_dtype(column) or is_string_dtype(column)):
        raise ConfigError(
            f"{path}: expected numbers or texts in column {name!r}; got {column.dtype}. Make numbers of it, such as days since "
            "the first, or leave it out."
        )
    kinds = (str, bool, int, float, Decimal, np.number, np.bool_, type(None), type(pd.NA))
    for row, cell in enumerate(column):
        if not isinstance(cell, kinds):
            raise ConfigError(
                f"{path}: expected finite numbers or texts; column {name!r} has {brief(cell)}, a {type(cell).__name__}, in row "
                f"{row + 1} below the header."
            )
    if any(isinstance(cell, str) for cell in column):
        return column.map(lambda cell: (plain_text(cell) or None) if isinstance(cell, str) else cell)
    if any(isinstance(cell, int) and int(float(cell)) != cell for cell in column):
        raise beyond_floats(path, name)
    return column.map(lambda cell: np.nan if cell is None or cell is pd.NA else float(cell)).astype(np.float64)


def _frame(path: Path, as_text: Sequence[str] | None) -> pd.DataFrame:
    try:
        if path.suffix not in (".csv", ".parquet"):
            raise ConfigError(f"{path}: expected a file that ends in .csv or .parquet.")
        frame = _csv(path, as_text) if path.suffix == ".csv" else _flatten_index(path, _parquet(path))
    except ImportError as error:
        raise MissingExtra("table", error.name or "pyarrow", "data") from None
    except (ValueError, OSError, NotImplementedError, KeyError) as error:
        if ragged := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error)):
            expected, line, got = ragged.groups()
            raise ConfigError(
                f"{path}: expected {expected} cells in each row, as in the header; line {line} has {got}. Numbers have decimal "
                "points, and a text with a comma stands in quotation marks."
            ) from None
        if unclosed := re.search(r"EOF inside string starting at row (\d+)", str(error)):
            raise ConfigError(
                f"{path}: expected quotation marks in pairs; got one in row {unclosed[1]} below the header that nothing "
                "closes. Close it, or leave it out; one that belongs to a quoted text is written twice."
            ) from None
        raise ConfigError(f"{path}: cannot be read: {why_not(path, error)}.") from None
    _check_header(path, list(frame.columns))
    return frame


def _parquet(path: Path) -> pd.DataFrame:
    """The table, if it is one: pyarrow's own words tell of its insides.

    Raises:
        ConfigError: it is of another kind, or cut, or has two columns of one name.
    """
    import pandas as pd
    from pyarrow.parquet import read_schema

    with path.open("rb") as file:
        head = file.read(4)
        file.seek(max(0, path.stat().st_size - 4))
        end = file.read()
    if head != b"PAR1":
        told = "it is empty" if not head else f"its first bytes are {head!r}"
        raise ConfigError(
            f"{path}: cannot be read: expected Apache Parquet; {told}. If it is CSV, let its name end in .csv."
        )
    if end != b"PAR1":
        raise ConfigError(
            f"{path}: cannot be read: expected PAR1 at its end; got {end!r}. It is cut: write or copy it again."
        )
    _check_header(path, [name.strip() for name in read_schema(path).names])
    return pd.read_parquet(path)


def _csv(path: Path, as_text: Sequence[str] | None) -> pd.DataFrame:
    """The table under the header as it is written; by default pandas renames the second of two equal column names."""
    import pandas as pd

    with path.open(encoding="utf-8-sig") as file:
        first, second = file.readline().strip(), file.readline()
    check_text(path, first + second)
    if "," not in first and (told := sniff_format(path)):
        raise ConfigError(f"{path}: cannot be read: {told}.")
    signs = re.sub(r'"[^"]*"', "", first)
    others = any(signs.count(sign) > signs.count(",") for sign in ";\t|")
    if others or ("," not in first and (first.startswith("#") or "," in second)):
        raise ConfigError(
            f"{path}: expected names of columns in the first line, separated by commas, and no comments; the header is "
            f"{brief(first)}. Values then have decimal points."
        )
    # With the row below it: were that longer than the header, pandas would take the first column for names of the rows.
    header = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False).iloc[0].tolist()
    names = [name.strip() for name in header]
    kinds = {raw: str for raw, name in zip(header, names, strict=True) if as_text is None or name in as_text}
    frame = pd.read_csv(path, low_memory=False, dtype=kinds).set_axis(names, axis=1)
    if as_text is None or len(set(names)) < len(names):
        return frame
    return frame.assign(**{name: _parse_numbers(frame[name]) for name in names if name not in as_text})


def _parse_numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """Numbers that all have space around them, of whatever kind, as the numbers they are: CSV knows no types."""
    import pandas as pd
    from pandas.api.types import is_string_dtype

    if not is_string_dtype(column):
        return column
    found = pd.to_numeric(column.str.strip(), errors="coerce")
    return column if found.isna().any() else found


def _check_codes(path: Path, frame: pd.DataFrame, beside: Collection[str], as_text: Collection[str]) -> None:
    """Refuse whole numbers with a leading 0, which were codes, such as postal codes, before pandas read them.

    Raises:
        ConfigError: a column of features holds one, or a column ``beside`` them another writing of the same number, too.
    """
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    if not re.search(rb"[^.\d]0\d", path.read_bytes()):  # seldom: only then are the cells read again, as they stand
        return
    places = [place for place, name in enumerate(frame) if is_numeric_dtype(frame[name]) and name not in as_text]
    cells = pd.read_csv(path, header=0, usecols=places, dtype=str)
    for place, raw in zip(places, cells, strict=True):
        codes = np.flatnonzero(cells[raw].str.fullmatch(r"\s*[-+]?0\d+\s*").fillna(value=False))
        if len(codes) and frame.columns[place] in beside:
            column, written = frame[frame.columns[place]].to_numpy(), cells[raw].str.strip()
            for both in written.groupby(column).unique()[np.unique(column[codes])]:
                if len(both) > 1:
                    raise ConfigError(
                        f"{path}: expected one way to write each number in column {frame.columns[place]!r}; got "
                        f"{' and '.join(map(brief, sorted(both)[:2]))}. Write them alike if they are the same, and otherwise "
                        "with a letter in front."
                    )
        elif len(codes):
            raise ConfigError(
                f"{path}: expected numbers or categories in column {frame.columns[place]!r}; got "
                f"{brief(cells[raw].iloc[codes[0]].strip())} in row {codes[0] + 1} below the header, a code rather than a "
                "number. If they are categories, name the column in categories; if not, write them without 0 in front."
            )


def _flatten_index(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns, where that has names; numbers of rows without a name are none.

    Raises:
        ConfigError: an index without a name that holds something else; names of columns in several levels.
    """
    import pandas as pd

    if frame.columns.nlevels > 1:
        raise ConfigError(f"{path}: expected one name for each column; got names of {frame.columns.nlevels} levels.")
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    levels = [frame.index.get_level_values(level) for level in range(frame.index.nlevels)]
    for values in levels:
        if values.name is None:
            _check_row_numbers(path, values)
    named = [pd.Series(one.to_numpy(), name=str(one.name).strip()) for one in levels if one.name is not None]
    whole = pd.concat([*named, frame.reset_index(drop=True)], axis=1)
    whole.attrs[_LEFT_OUT] = any(one.name is None and not isinstance(one, pd.RangeIndex) for one in levels)
    return whole


def _check_row_numbers(path: Path, values: pd.Index) -> None:
    from pandas.api.types import is_integer_dtype

    if is_integer_dtype(values) and values.is_unique:
        return
    odd = values[values.duplicated()] if is_integer_dtype(values) else values
    where = "more than one row" if is_integer_dtype(values) else "the first row"
    raise ConfigError(
        f"{path}: expected a name for each column; the index has none, and holds {brief(odd[:1].tolist()[0])} in {where}. Name "
        "it, or write the file with index=False."
    )


def _check_header(path: Path, names: list[str]) -> None:
    if "" in names:
        raise ConfigError(
            f"{path}: expected a name for each column; column {names.index('') + 1} has none. Name it, or leave it out: pandas "
            "writes row numbers so, without index=False."
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{path}: expected columns of different names; {brief(twice[0])} is listed there twice.")


def _labels(path: Path, column: pd.Series[Any]) -> NDArray[Any]:
    """int64, or texts.

    Raises:
        ConfigError: they are measurements rather than classes: numbers in another writing, days, or many different numbers with
            fractions.
    """
    from pandas.api.types import is_numeric_dtype

    values = column.to_numpy()
    if is_numeric_dtype(column) and is_whole(values):
        whole = values.astype(np.int64)
        if not all_days(np.unique(whole).tolist()):
            return whole
    named = values.astype(str)
    different = dict(zip(*(found.tolist() for found in np.unique(named, return_counts=True)), strict=True))
    what, one = detect_text_kind(different) or ("", "")
    if what and (len(different) > FEW_TEXTS or what not in (AMONG, STORED)):
        kind = what.removesuffix(" written as texts").removesuffix(" stored as texts")
        raise ConfigError(
            f"{path}: expected classes in column {str(column.name)!r}; got {len(different)} different {kind}, such as "
            f"{brief(one)}. Make classes of them, such as low and high; if they are classes, name the column in categories."
        )
    return named
