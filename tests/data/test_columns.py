"""What columns of a table are taken for: what is not plain is refused, with what to do."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

import numpy as np
import pytest
import torch

from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from tests.told import told

pd = pytest.importorskip("pandas")

#: As many rows as there are; fewer than half of any column's values differ.
ROWS = 120
NUMBERS = [37.1 + 0.1 * (row * 7 % 40) for row in range(ROWS)]


def load(name, **parameters):
    return load_registry().build("data", {"name": name, **parameters}).load()


def table(folder, column, kind="csv", **more):
    """A table of one column of features, with labels of two kinds."""
    frame = pd.DataFrame({"c": column, "y": [("no", "yes")[row % 2] for row in range(len(column))]} | more)
    file = folder / f"t.{kind}"
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file, index=False)
    return str(file)


#: Numbers in other writings than Python's.
WRITINGS = {
    "decimal comma": lambda v: f"{v:.1f}".replace(".", ","),
    "decimal comma, negative": lambda v: f"-{v:.1f}".replace(".", ","),
    "decimal comma without a zero": lambda v: f",{v:.0f}",
    "unit": lambda v: f"{v:.1f} kg",
    "unit without a space": lambda v: f"{v:.0f}mg",
    "compound unit": lambda v: f"{v:.1f} mg/dl",
    "square": lambda v: f"{v:.1f} m2",
    "degrees": lambda v: f"{v:.1f} °C",
    "micro": lambda v: f"{v:.1f} µg",
    "percent": lambda v: f"{v:.1f}%",
    "percent with a space": lambda v: f"{v:.1f} %",
    "percent with a comma": lambda v: f"{v:.1f} %".replace(".", ","),
    "currency before": lambda v: f"${v:.2f}",
    "currency after": lambda v: f"{v:.2f} EUR",
    "currency of accountants": lambda v: f"({v:.2f})",
    "thousands by comma": lambda v: f"{1000 * v:,.2f}",
    "thousands by space": lambda v: f"{1000 * v:,.0f}".replace(",", " "),
    "thousands by a narrow space": lambda v: f"{1000 * v:,.0f}".replace(",", "\u202f"),
    "thousands by apostrophe": lambda v: f"{1000 * v:,.0f}".replace(",", "'"),
    "thousands by point": lambda v: f"{1e6 * v:,.0f}".replace(",", "."),
    "minus of typesetters": lambda v: f"\u2212{v:.1f}",
    "exponent and unit": lambda v: f"{v:.1e} s",
    "unit of two words": lambda v: f"{v:.0f} mm Hg",
    "unit with a point": lambda v: f"{v:.0f} Std.",
    "years": lambda v: f"{v:.0f} years old",
    "sign before the currency": lambda v: f"-${v:.2f}",
    "currency of a country": lambda v: f"US${v:.2f}",
    "krone": lambda v: f"kr {v:.0f}",
    "won": lambda v: f"\u20a9{1000 * v:,.0f}",
    "percent of full width": lambda v: f"{v:.1f}\uff05",
    "unit before": lambda v: f"kg {v:.1f}",
    "name before": lambda v: f"weight: {v:.1f}",
    "bounds": lambda v: f"<{v:.1f}",
    "about": lambda v: f"~{v:.1f}",
    "with an error": lambda v: f"{v:.1f}\u00b10.1",
    "two numbers": lambda v: f"{3 * v:.0f}/{2 * v:.0f}",
    "points of a plane": lambda v: f"({v:.1f}, {v:.1f})",
    "feet and inches": lambda v: f"{v * 3 // 12:.0f}'{v * 3 % 12:.0f}\"",
    "hours and minutes": lambda v: f"{v // 10:.0f}h{6 * (v % 10):02.0f}",
    "minus behind": lambda v: f"{v:.1f}-",
    "exponent of Fortran": lambda v: f"{v:.1f}D+01",
    "power of ten": lambda v: f"{v:.1f}x10^3",
    "quotation": lambda v: f"'{v:.1f}'",
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("writing", WRITINGS)
def test_numbers_in_another_writing_are_no_categories(tmp_path, writing, kind):
    column = [WRITINGS[writing](value) for value in NUMBERS]
    with pytest.raises(
        ConfigError, match=r"in column 'c'; got numbers written as texts, such as .*name the column in categories"
    ):
        load("table", file=table(tmp_path, column, kind), label="y")


@pytest.mark.parametrize("count", [2, 3, 9])
@pytest.mark.parametrize("writing", WRITINGS)
def test_nor_are_they_where_few_of_them_differ(tmp_path, writing, count):
    column = [WRITINGS[writing](37.1 + row % count) for row in range(ROWS)]
    if writing not in ("unit before", "name before") and (writing != "bounds" or count > 2):  # names: version 1.5, >5
        with pytest.raises(ConfigError, match=r"in column 'c'; got numbers written as texts, such as"):
            load("table", file=table(tmp_path, column), label="y")
        with pytest.raises(
            ConfigError, match=rf"expected classes in column 'y'; got {len({*column})} different numbers, such"
        ):
            load("table", file=table(tmp_path, NUMBERS, y=column), label="y")
    file = table(tmp_path, NUMBERS, y=column)
    assert load("table", file=file, label="y", categories=["y"]).classes == len({*column})
    assert load("table", file=file, label="y", categories=["y"], public=file).classes == len({*column})


MIXED = {
    "low": ["low" if row % 2 else f"{20 + row % 30}" for row in range(ROWS)],
    "0x1F": ["0x1F" if row % 2 else f"{row % 3}e5" for row in range(ROWS)],
    "1_000": [("500", "1_000", "2_000")[row % 3] for row in range(ROWS)],
    "\u00bd": [("\u00bd", "1\u00bd", "2")[row % 3] if row % 2 else "7" for row in range(ROWS)],
}


@pytest.mark.parametrize("odd", MIXED)
def test_the_text_that_is_named_is_the_one_that_is_no_number(tmp_path, odd):
    with pytest.raises(ConfigError, match=rf"column 'c'.* got (numbers (written as|and) texts, such as )?'1?{odd}'"):
        load("table", file=table(tmp_path, MIXED[odd]), label="y")


def test_numbers_that_parquet_stores_as_texts_are_told_how_to_become_numbers(tmp_path):
    with pytest.raises(
        ConfigError, match=r"got numbers stored as texts, such as '1.5'. Store them as numbers: .*categories"
    ):
        load("table", file=table(tmp_path, ["1.5", "2.5", "3.5"] * 40, "parquet"), label="y")


def test_bounds_are_categories_where_they_are_the_ends_of_bands_alone(tmp_path):
    for bands in (["<5", ">=5"], ["<=50K", ">50K"], ["<18", "18-65", ">65"]):
        column = [bands[row % len(bands)] for row in range(ROWS)]
        assert load("table", file=table(tmp_path, column), label="y").shape == (len(bands),)
        assert load("table", file=table(tmp_path, NUMBERS, y=column), label="y").classes == len(bands)
    with pytest.raises(ConfigError, match="got numbers written as texts, such as '<5'"):
        load("table", file=table(tmp_path, ["<5", "<10", ">50"] * 40), label="y")


@pytest.mark.parametrize("share", [0.55, 0.95])
def test_numbers_among_more_rows_of_one_word_are_no_categories(tmp_path, share):
    column = ["unknown" if row < share * ROWS else f"{value:.1f}" for row, value in enumerate(NUMBERS)]
    with pytest.raises(ConfigError, match="got numbers and texts, such as 'unknown'"):
        load("table", file=table(tmp_path, column), label="y")


def test_few_different_numbers_are_no_categories_either(tmp_path):
    with pytest.raises(ConfigError, match="such as '1,5'"):
        load("table", file=table(tmp_path, ["1,5", "2,0", "2,5"] * 40), label="y")


@pytest.mark.parametrize("rows", [0.4, 0.7])
def test_many_numbers_among_more_words_are_no_categories(tmp_path, rows):
    words = [first + second for first in "abcdefg" for second in "uvwxyz"]
    column = [f"{row * 7 % 30}" if row % 10 < 10 * rows else words[row % 42] for row in range(2 * ROWS)]
    with pytest.raises(ConfigError, match="column 'c'"):
        load("table", file=table(tmp_path, column), label="y")


def test_a_writing_in_most_rows_is_none_of_categories_however_many_words_there_are(tmp_path):
    column = [("1,5", "2,5")[row % 2] if row % 10 < 7 else "abcdef"[row // 10 % 6] for row in range(ROWS)]
    with pytest.raises(ConfigError, match="got numbers written as texts, such as '1,5'"):
        load("table", file=table(tmp_path, column), label="y")


@pytest.mark.parametrize("writing", [None, *WRITINGS])
def test_measurements_are_no_classes(tmp_path, writing):
    values = [0.7 + (row * 7 % 40) ** 3 for row in range(ROWS)]
    column = [f"{value:.1f}" if writing is None else WRITINGS[writing](value) for value in values]
    with pytest.raises(ConfigError, match=r"expected classes in column 'y'; got \d+ different numbers, such as"):
        load("table", file=table(tmp_path, NUMBERS, y=column), label="y")


@pytest.mark.parametrize(
    "values", [["0.5", "1.5", "2.5"], ["1", "2", "x"], ["red", "7"], [f"grade {n}" for n in range(12)]]
)
def test_few_numbers_and_many_names_are_classes(tmp_path, values):
    column = [values[row % len(values)] for row in range(ROWS)]
    assert load("table", file=table(tmp_path, NUMBERS, y=column), label="y").classes == len(values)


DATES = {
    "days": "2024-05-{:02d}",
    "days with slashes": "{}/7/2024",
    "days with points": "{:02d}.07.24",
    "times": "2024-05-{:02d} 12:30:00",
    "times with a T": "2024-05-{:02d}T12:30",
    "hours": "{:02d}:45",
    "hours of twelve": "{}:45 PM",
    "months by name": "May {:02d}, 2024",
    "months by name, German": "{:02d}. May 2024",
    "months with hyphens": "{:02d}-May-24",
    "days of the week": "Mon, {:02d} May 2024 12:30",
    "months": "2024-{:02d}",
    "months with slashes": "{:02d}/2024",
    "weeks": "2024-W{:02d}",
    "packed with a T": "202405{:02d}T123000",
    "packed": "202405{:02d}",
    "days of a year": "{:02d}-05",
    "a point behind": "2024.05.{:02d}. 12:30",
    "days without a year": "{:02d}.05.",
    "quarters": "Q1/{:02d}",
    "quarters with a year in front": "20{:02d}-Q3",
    "halves": "H1 20{:02d}",
}


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("kind", DATES)
def test_dates_and_times_are_no_categories(tmp_path, kind, count):
    column = [DATES[kind].format(1 + row % count) for row in range(ROWS)]
    with pytest.raises(ConfigError, match="in column 'c'; got dates or times, such as .*days since the first"):
        load("table", file=table(tmp_path, column), label="y")


@pytest.mark.parametrize(
    "column",
    [
        [datetime.date(2024, 5, 1 + row % 12) for row in range(ROWS)],
        [datetime.time(row % 12) for row in range(ROWS)],
        pd.to_datetime([f"2024-05-{1 + row % 12:02d}" for row in range(ROWS)]),
        pd.to_timedelta([row % 12 for row in range(ROWS)], unit="h"),
        [np.float64(row % 12).tobytes() for row in range(ROWS)],
        [[row % 3] for row in range(ROWS)],
        [{"a": row % 3} for row in range(ROWS)],
        pd.Categorical([b"ab"[row % 2 :][:1] for row in range(ROWS)]),
        pd.Categorical(pd.to_datetime([f"2024-05-{1 + row % 12:02d}" for row in range(ROWS)])),
    ],
    ids=["dates", "times", "moments", "durations", "bytes", "lists", "mappings", "kinds of bytes", "kinds of moments"],
)
def test_what_parquet_may_hold_besides_is_refused_in_one_line(tmp_path, column):
    with pytest.raises(ConfigError, match=r"expected (finite )?numbers or texts.*(column|in column) 'c'") as told:
        load("table", file=table(tmp_path, column, "parquet"), label="y")
    assert "\n" not in str(told.value)


CATEGORIES = {
    "words": ["red", "blue", "green"],
    "ranges": ["18-25", "26-40", "41-60"],
    "open ranges": ["<18", "18-65", ">65"],
    "ordinals": ["1st", "2nd", "3rd", "10th"],
    "codes": ["A11", "A12", "B3"],
    "short codes": ["u0", "u1", "m2"],
    "school": ["11th", "9th", "HS-grad", "Bachelors", "7th-8th", "Masters"],
    "names with numbers": ["route 66", "route 101", "street 5"],
    "one number among words": ["none", "1", "many"],
    "versions": ["1.2.3b", "1.2.4b", "2.0.0b"],
    "many bands": [f"{age}-{age + 4}" for age in range(0, 100, 5)],
    "bands of cut": [f"({low / 2}, {low / 2 + 0.5}]" for low in range(15)],
    "many ordinals": [f"{1 + day}{({0: 'st', 1: 'nd', 2: 'rd'}).get(day, 'th')}" for day in range(12)],
    "numbered": [f"store {number}" for number in range(30)],
    "codes of diseases": [f"E{number}.{number % 9}" for number in range(10, 40)],
    "names of months": ["January", "May", "March", "Marina 12"],
    "counts": ["none", "1", "2 or more"],
}


@pytest.mark.parametrize("kind", CATEGORIES)
def test_categories_stay_categories(tmp_path, kind):
    values = CATEGORIES[kind]
    found = load("table", file=table(tmp_path, [values[row * 7 % len(values)] for row in range(ROWS)]), label="y")
    assert found.shape == (len(values),)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_named_in_categories_is_one(tmp_path, kind):
    doses = [f"{10 * (1 + row % 3)} mg" for row in range(ROWS)]
    codes = [f"0{row % 4}" for row in range(ROWS)]  # as numbers, one column
    file = table(tmp_path, doses, kind, code=codes, number=NUMBERS)
    source = load_registry().build("data", {"name": "table", "file": file, "label": "y", "categories": ["c", "code"]})
    assert source.load().shape == (3 + 4 + 1,)
    assert list(source.describe()) == [
        "y: the label: no, yes",
        "c: 3 categories, a column of 0 and 1 for each: 10 mg, 20 mg, 30 mg",
        "code: 4 categories, a column of 0 and 1 for each: 00, 01, 02, 03",
        "number: numbers from 37.1 to 41",
    ]
    with pytest.raises(ConfigError, match="unknown column 'cod'. Did you mean 'code'"):
        load("table", file=file, label="y", categories=["c", "cod"])


def test_a_column_that_parquet_calls_categorical_is_one(tmp_path):
    codes = pd.Categorical([f"{row % 3}" for row in range(ROWS)])  # of whole numbers it makes numbers itself
    assert load("table", file=table(tmp_path, codes, "parquet"), label="y").shape == (3,)


def test_numbers_in_another_writing_are_none_for_being_called_categorical(tmp_path):
    column = pd.Categorical([f"{value:.1f}".replace(".", ",") for value in NUMBERS])
    with pytest.raises(ConfigError, match="got numbers written as texts"):
        load("table", file=table(tmp_path, column, "parquet"), label="y")
    spaces = pd.Categorical([("a", " a", "b")[row % 3] for row in range(ROWS)])
    assert load("table", file=table(tmp_path, spaces, "parquet"), label="y").shape == (2,)


@pytest.mark.parametrize("space", [" ", "\t", "\u00a0", "\u202f"])
def test_space_around_numbers_of_csv_is_none_of_them(tmp_path, space):
    column = [f"{space}{value:.1f}{space * (row % 2)}" for row, value in enumerate(NUMBERS)]
    there = load("table", file=table(tmp_path, column), label="y")
    plain = load("table", file=table(tmp_path, [round(value, 1) for value in NUMBERS]), label="y")
    assert torch.equal(there.train.x, plain.train.x)
    with pytest.raises(ConfigError, match="got numbers stored as texts"):  # who writes texts into Parquet means them
        load("table", file=table(tmp_path, column, "parquet"), label="y")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_that_floats_do_not_tell_apart_name_rows_or_clients(tmp_path, kind):
    column = [2**60 + row % 9 for row in range(ROWS)]
    file = table(tmp_path, column, kind, n=NUMBERS)
    with pytest.raises(ConfigError, match="column 'c'; got whole numbers beyond 2"):
        load("table", file=file, label="y")
    assert len(load("table", file=file, label="y", client="c").train.client.unique()) == 9


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("kind", DATES)
def test_dates_are_no_classes(tmp_path, kind, count):
    column = [DATES[kind].format(1 + row % count) for row in range(ROWS)]
    with pytest.raises(ConfigError, match=rf"expected classes in column 'y'; got {count} different dates or times"):
        load("table", file=table(tmp_path, NUMBERS, y=column), label="y")


def test_labels_that_are_true_or_false_are_read_beside_public_ones_as_without(tmp_path):
    for name in ("a", "b"):
        pd.DataFrame({"n": NUMBERS, "y": [row % 3 == 0 for row in range(ROWS)]}).to_csv(tmp_path / name, index=False)
        (tmp_path / name).rename(tmp_path / f"{name}.csv")
    alone = load("table", file=str(tmp_path / "a.csv"), label="y")
    beside = load("table", file=str(tmp_path / "a.csv"), label="y", public=str(tmp_path / "b.csv"))
    assert {len(torch.cat([one.train.y, one.test.y]).nonzero()) for one in (alone, beside)} == {ROWS // 3}


def test_decimal_numbers_of_parquet_are_numbers(tmp_path):
    column = [Decimal(f"{value:.1f}") for value in NUMBERS]
    there = load("table", file=table(tmp_path, column, "parquet"), label="y")
    plain = load("table", file=table(tmp_path, [round(value, 1) for value in NUMBERS]), label="y")
    assert there.shape == (1,) and torch.equal(there.train.x, plain.train.x)


def test_space_around_a_text_or_a_name_is_none_of_it(tmp_path):
    file = tmp_path / "t.csv"
    rows = "".join(
        f"{('a', ' a', 'b ')[row % 3]}, {('u', 'u ')[row % 2]},{row % 7}, {('no', ' yes')[row // 2 % 2]}\n"
        for row in range(48)
    )
    file.write_text(f"kind, who ,n, y\n{rows}")
    found = load("table", file=str(file), label="y", client="who")
    assert (found.shape, found.classes, found.train.client.unique().tolist()) == ((3,), 2, [0])
    file.write_text(f"kind, who ,n, y\n{rows.replace('b ,', ' ,')}")
    with pytest.raises(ConfigError, match="expected a value in each row; column 'kind' has none in 16, first in row 3"):
        load("table", file=str(file), label="y", client="who")


def test_one_letter_written_in_two_ways_is_one(tmp_path):
    names = [("caf\u00e9", "cafe\u0301", "bar")[row % 3] for row in range(ROWS)]
    assert load("table", file=table(tmp_path, names), label="y").shape == (2,)
    assert load("table", file=table(tmp_path, NUMBERS, who=names), label="y", client="who").train.client.max() == 1


def test_long_categories_are_told_in_short(tmp_path):
    file = table(tmp_path, [f"{'long ' * 40}{row % 2}" for row in range(ROWS)])
    (_, line) = load_registry().build("data", {"name": "table", "file": file, "label": "y"}).describe()
    assert line.startswith("c: 2 categories") and len(line) < 150


@pytest.mark.parametrize("column", ["label", "client"])
def test_two_writings_of_one_number_are_not_merged_into_one_class_or_client(tmp_path, column):
    """07 and 7 are read as one number; 00 and 01 say the same as numbers."""
    for written, refused in (
        (("07", "7"), True),
        (("00", "01"), False),
        (("0", "1"), False),
        (("00", "1", "1"), False),
    ):
        file = table(tmp_path, NUMBERS, group=[written[row % len(written)] for row in range(ROWS)])
        given = {"label": "group"} if column == "label" else {"label": "y", "client": "group"}
        if refused:
            with pytest.raises(ConfigError, match="one way to write each number in column 'group'; got '07' and '7'"):
                load("table", file=file, **given)
        else:
            load("table", file=file, **given)


def test_codes_of_which_most_are_numbers_are_refused_with_both_ways_out(tmp_path):
    codes = [("250.83", "V45", "428", "276")[row % 4] for row in range(ROWS)]
    with pytest.raises(ConfigError, match=r"got 'V45' in row 2 below the header. .*name the column in categories"):
        load("table", file=table(tmp_path, codes), label="y")
    assert load("table", file=table(tmp_path, codes), label="y", categories=["c"]).shape == (4,)


@pytest.mark.parametrize("code", ["02139", "-007", " 02139 ", '"00"'])
@pytest.mark.parametrize("place", [0, 77])
def test_whole_numbers_with_0_in_front_are_refused_as_codes(tmp_path, code, place):
    """Read as numbers, 02139 and 2139 are one, and no message tells of it."""
    rows = [
        f"{row % 17 / 2},{code if row == place else 94000 + row % 3},{('no', 'yes')[row % 2]}" for row in range(ROWS)
    ]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["a,town,y", *rows]))
    plain = re.escape(code.strip(' "'))
    with pytest.raises(
        ConfigError, match=rf"column 'town'; got '{plain}' in row {place + 1} below .* in categories; if not"
    ):
        load("table", file=str(file), label="y")
    assert load("table", file=str(file), label="y", categories=["town"]).shape == (1 + 4,)


def test_0_in_front_is_no_code_where_it_is_a_number_s_own_or_no_feature_s(tmp_path):
    rows = [f"0{row % 2},00{row % 4},{row % 3},0.0{row % 5},2{row % 7}e-01,-0.{row % 9}1" for row in range(ROWS)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["y,who,zero,small,power,less", *rows]))
    found = load("table", file=str(file), label="y", client="who")
    assert found.shape == (4,) and found.classes == 2


def test_an_index_with_a_name_is_a_column(tmp_path):
    a, b = np.arange(ROWS) % 17 / 2, np.arange(ROWS) % 13
    frame = pd.DataFrame({"a": a, "b": b, "y": ["no", "yes"] * (ROWS // 2)})
    plain = load("table", file=table(tmp_path, a, b=b), label="y")
    for number, index in enumerate((["a"], ["b"], ["a", "b"])):
        file = tmp_path / f"{number}.parquet"
        frame.set_index(index).to_parquet(file)
        found = load("table", file=str(file), label="y")
        order = sorted(range(2), key=lambda one: (*index, *({"a", "b"} - set(index))).index("ab"[one]))
        assert found.shape == (2,) and torch.equal(found.train.x, plain.train.x[:, order])
    frame.set_index("y").to_parquet(file)
    assert torch.equal(load("table", file=str(file), label="y").train.x, plain.train.x)


def test_numbers_of_rows_are_no_column_and_an_index_without_a_name_is_refused(tmp_path):
    frame = pd.DataFrame({"a": np.arange(ROWS) % 17, "y": ["no", "yes"] * (ROWS // 2)})
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "t.parquet")
    assert load("table", file=str(tmp_path / "t.parquet"), label="y").shape == (1,)
    frame.set_axis([f"p{row}" for row in range(ROWS)]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match=r"the index has none, and holds 'p0' in the first row. Name it"):
        load("table", file=str(tmp_path / "t.parquet"), label="y")


def test_what_an_index_without_a_name_holds_is_row_numbers_only_where_no_two_are_alike(tmp_path):
    frame = pd.DataFrame({"a": np.arange(ROWS) % 17, "y": ["no", "yes"] * (ROWS // 2)})
    file = tmp_path / "t.parquet"
    frame.set_index(pd.Index(np.arange(ROWS) % 11)).to_parquet(file)
    with pytest.raises(ConfigError, match="the index has none, and holds 0 in more than one row"):
        load("table", file=str(file), label="y")
    frame.set_index(pd.Index(np.arange(ROWS) * 7 % ROWS)).to_parquet(file)
    source = load_registry().build("data", {"name": "table", "file": str(file), "label": "y"})
    assert list(source.describe())[-1] == "index without a name: whole numbers that differ, left out as numbers of rows"


def test_names_of_parquet_are_single_texts_without_space_around_them(tmp_path):
    file = tmp_path / "t.parquet"
    frame = pd.DataFrame({"0": NUMBERS, " b ": NUMBERS, "y ": ["no", "yes"] * (ROWS // 2)})
    frame.to_parquet(file)
    source = load_registry().build("data", {"name": "table", "file": str(file), "label": "y"})
    assert source.load().shape == (2,)
    assert [line.partition(":")[0] for line in source.describe()] == ["y", "0", "b"]
    frame.set_axis(pd.MultiIndex.from_tuples([("a", "b"), ("a", "c"), ("y", "")]), axis=1).to_parquet(file)
    with pytest.raises(ConfigError, match="expected one name for each column; got names of 2 levels"):
        load("table", file=str(file), label="y")
    frame.set_index(pd.Index(NUMBERS, name="y ")).to_parquet(file)
    with pytest.raises(ConfigError, match="expected columns of different names; 'y' is listed there twice"):
        load("table", file=str(file), label="y")


CSV = "a,b,y\n" + "".join(f"{row % 7 + 0.5},{row % 5},{('no', 'yes')[row % 2]}\n" for row in range(30))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CSV.replace(",", ";").replace(".", ",").encode(), "separated by commas, and no comments; the header is 'a;b;y'"),
        (CSV.replace(",", "\t").encode(), "separated by commas"),
        (CSV.replace(",", "|").encode(), "separated by commas"),
        (b"# exported by somebody\n" + CSV.encode(), "no comments; the header is '# exported by somebody'"),
        (b"a;b, kg;y\n1;2,5;no\n", "separated by commas"),
        (CSV.replace(".", ",").encode(), "expected 3 cells in each row, as in the header; line 2 has 4. .* decimal points"),
        (CSV.replace("0.5", "0,5").encode(), "expected 3 cells in each row, as in the header; line 2 has 4"),
        (CSV.replace("1.5", "1,5").encode(), "expected 3 cells in each row, as in the header; line 3 has 4"),
        (b"exported by somebody\n" + CSV.encode(), "no comments; the header is 'exported by somebody'"),
        (CSV.replace("b,", "d\u00e9,").encode("latin-1"), "its byte 4, 0xe9, is no UTF-8: write it as UTF-8"),
        (CSV.replace("no", "n\u00f6").encode("cp1252"), "is no UTF-8: write it as UTF-8"),
        (CSV.encode("utf-16"), "it is UTF-16: write it as UTF-8"),
        (CSV.encode("utf-32"), "it is UTF-32: write it as UTF-8"),
        (CSV.encode("utf-16-le"), "it holds the character 0, as UTF-16 and UTF-32 do: write it as UTF-8"),
        (CSV.encode("utf-32-be"), "it holds the character 0, as UTF-16 and UTF-32 do"),
        (b"PK\x03\x04\x14\x00", "it is a zip archive, as files of Excel are"),
        (b"<!DOCTYPE html>\n<html>\n", "it is a web page or XML"),
        (CSV.encode() + b"# end\n", "The row is a comment, '# end': leave it out"),
    ],
)  # fmt: skip
def test_csv_of_another_kind_is_refused_in_our_words(tmp_path, content, said):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ConfigError, match=said) as told:
        load("table", file=str(tmp_path / "t.csv"), label="y")
    assert "\n" not in str(told.value) and "tokenizing" not in str(told.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-32-be"])
def test_a_text_of_another_encoding_is_refused(tmp_path, encoding):
    (tmp_path / "t.txt").write_bytes(("abc " * 100).encode(encoding))
    with pytest.raises(ConfigError, match="expected a text in UTF-8: it (is|holds) .*UTF-(16|32)"):
        load("text", file=str(tmp_path / "t.txt"))


@pytest.mark.parametrize(
    ("public", "private"), [("7,1\n8,0\n", "07,1\n7,0\n8,1\n"), ("7,1\n8,0\n", "7,1\n007,0\n8,1\n")]
)
def test_private_codes_are_not_merged_with_the_numbers_of_public_rows(tmp_path, public, private):
    """Codes 07 and 7, of wards say, are two; nobody may take them for one number because the public rows have but one."""
    (tmp_path / "private.csv").write_text("ward,sick\n" + private * 20)
    (tmp_path / "public.csv").write_text("ward,sick\n" + public * 20)
    files = {"file": str(tmp_path / "private.csv"), "public": str(tmp_path / "public.csv")}
    for label in ("sick", "ward"):
        with pytest.raises(
            ConfigError, match="got '0+7' and '7', a code rather than a number. Write each number in one way"
        ):
            load("table", **files, label=label)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classes": 2}, "classes: expected a list of texts; got 2"),
        ({"classes": ["cat"]}, "classes: expected their names, two or more different ones; got"),
        ({"size": 8}, "size: expected a list of 2 whole numbers; got 8"),
        ({"size": [8]}, r"size: expected a list of 2 whole numbers; got \[8\]"),
        ({"size": [8, 8, 3]}, r"size: expected a list of 2 whole numbers; got \[8, 8, 3\]"),
        ({"size": [10**9, 8]}, r"size.0: expected a number in \[1, 16384\]; got 1000000000"),
    ],
)
def test_parameters_that_are_lists_say_of_what(given, said):
    with pytest.raises(ConfigError, match=f"^image_folder: {said}"):
        load("image_folder", folder="images", **given)


def test_a_quotation_mark_that_nothing_closes_is_told_by_its_row(tmp_path):
    (tmp_path / "t.csv").write_text(CSV + '1,"2,no\n' + CSV[6:])
    with pytest.raises(ConfigError, match="quotation marks in pairs; got one in row 31 below the header that nothing"):
        load("table", file=str(tmp_path / "t.csv"), label="y")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (CSV.encode(), r"expected Apache Parquet; its first bytes are b'a,b,'. If it is CSV, let its name end in .csv"),
        (CSV.encode("utf-8-sig"), "expected Apache Parquet; its first bytes are .* If it is CSV"),
        (b"", "expected Apache Parquet; it is empty"),
        (b"PAR1 and no more", "expected PAR1 at its end; got b'more'. It is cut"),
    ],
)
def test_what_is_called_parquet_and_is_none_is_told_in_our_words(tmp_path, content, said):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load("table", file=str(tmp_path / "t.parquet"), label="y")


def test_two_columns_of_parquet_with_one_name_are_refused_as_those_of_csv_are(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    columns = [arrow.array(NUMBERS), arrow.array(NUMBERS), arrow.array(["no", "yes"] * (ROWS // 2))]
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns, ["a", "a ", "y"]), tmp_path / "t.parquet")
    with pytest.raises(ConfigError, match="columns of different names; 'a' is listed there twice"):
        load("table", file=str(tmp_path / "t.parquet"), label="y")


def test_numbers_that_are_close_are_told_with_the_digits_that_tell_them_apart(tmp_path):
    file = table(tmp_path, [1717000000 + row for row in range(ROWS)], one=[7] * ROWS)
    (_, close, one) = load_registry().build("data", {"name": "table", "file": file, "label": "y"}).describe()
    assert close == "c: numbers from 1717000000 to 1717000119" and one == "one: numbers from 7 to 7"


def test_check_tells_each_column_and_what_is_refused(tmp_path):
    columns = {
        "colour": [("red", "blue", "green")[row % 3] for row in range(ROWS)],
        "who": [row % 4 for row in range(ROWS)],
    }
    said = told(name="table", file=table(tmp_path, NUMBERS, **columns), label="y", client="who")
    assert "inputs [4] from" in said and "4 natural clients with" in said
    for line in (
        "  y: the label: no, yes",
        "  who: the client",
        "  c: numbers from 37.1 to 41",
        "  colour: 3 categories, a column of 0 and 1 for each: blue, green, red",
    ):
        assert f"\n{line}" in said
    said = told(name="table", file=table(tmp_path, [f"{value} kg" for value in NUMBERS]), label="y")
    assert "1 refused" in said and "got numbers written as texts, such as '37.1 kg'" in said
