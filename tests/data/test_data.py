"""No damaged data file is answered by a fault of ours: `tests/fuzz/data.py` in its short form, and what it once found."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

from tests.fuzz.data import KINDS, answer, cases

pytestmark = pytest.mark.filterwarnings("ignore")


def test_every_damaged_file_is_a_data_set_or_one_line(tmp_path):
    said = []
    for case in cases(tmp_path / "data", 25 * len(KINDS), seed=1):
        try:
            said.append(answer(case.data, tmp_path / "data"))
        except AssertionError as error:
            pytest.fail(f"{case.what}: {error}")
    assert sum(" classes" in one for one in said) >= 10  # it does not refuse all
    assert sum(str(tmp_path) in one for one in said) >= 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (gzip.compress, "as numpy.savez writes it; it is gzipped: unpack it"),
        (lambda one: b"\xef\xbb\xbf" + one, "it begins with a byte order mark: write it without"),
        (lambda one: b"\x80\x04K\x01.", "it holds Python objects, which are not read"),
        (lambda one: b"<!DOCTYPE html>", "it is a web page or XML"),
        (lambda one: b"", "it is empty"),
        (lambda one: b"abcdef", "its first bytes are '616263646566'"),
    ],
)
def test_what_is_no_npz_is_told_by_its_first_bytes(tmp_path, change, said):
    path = tmp_path / "data.npz"
    np.savez(path, x=np.ones((4, 2)), y=np.arange(4) % 2)
    path.write_bytes(change(path.read_bytes()))
    told = answer({"name": "npz", "file": str(path)}, tmp_path)
    assert said in told


def test_an_infinite_value_of_a_table_has_its_row_and_a_long_one_is_cut(tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"{n},{n},{n % 2}" for n in range(20)]
    for value, said in (
        ("inf", "column 'b' has inf in row 8 below the header"),
        ("x y " * 900, "in row 8 below the header"),
    ):
        path.write_text("\n".join(["a,b,label", *rows[:7], f"7,{value},1", *rows[8:]]))
        told = answer({"name": "table", "file": str(path), "label": "label"}, tmp_path)
        assert said in told and len(told) < 400, told


def test_lists_in_a_column_of_parquet_have_their_row(tmp_path):
    pd = pytest.importorskip("pandas")
    path = tmp_path / "data.parquet"
    pd.DataFrame({"a": range(4), "label": [[1, 2]] * 4}).to_parquet(path)
    told = answer({"name": "table", "file": str(path), "label": "label"}, tmp_path)
    assert "expected finite numbers or texts; column 'label' has" in told and "in row 1 below" in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("number", [1, 4, 5], ids=["idx", "leaf", "image_folder"])
def test_nobody_waits_for_a_pipe(tmp_path, number):
    import random

    data, files, _ = KINDS[number](tmp_path, random.Random(0))
    files[0].unlink()
    os.mkfifo(files[0])
    assert f"{files[0]}: expected a file; this is a folder, a pipe" in answer(data, tmp_path)
