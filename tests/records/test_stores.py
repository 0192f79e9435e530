"""No damaged store is answered by a fault of ours: `tests/fuzz/stores.py` in its short form, and what it once found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal

import pytest

import fedguard as fg
from fedguard.bench.records.record import from_text, to_text
from fedguard.errors import StoreError
from tests.fuzz.stores import SUITE, Case, _command, answers, cases, load, small_store

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each store is read in a process of its own"),
]

FEW = {**SUITE, "matrix": {"attack": ["none", "sign_flip", "robbing_the_fed", "fed_mia"], "defense": ["mean"]}}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    load(small_store(folder, FEW))
    return folder


@pytest.fixture
def store(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "copy")
    return tmp_path / "copy" / "store"


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_every_reader_answers_whatever_is_damaged(sound, tmp_path, count):
    for number, case in enumerate(cases(sound / "store", count, seed=3)):
        place = tmp_path / str(number)
        shutil.copytree(sound, place)
        case.harm(place / "store")
        assert answers(place / "store", case) == [], case.what
        shutil.rmtree(place)


def a_record(store):
    return next(path for path in sorted(store.glob("small/cells/*/*.json")) if '"status": "ok"' in path.read_text())


def test_a_record_with_neither_an_accuracy_nor_a_return_is_damaged(store):
    path = a_record(store)
    record = from_text(path.read_bytes())
    del record["result"]["final_accuracy"]
    with pytest.raises(ValueError, match="damaged at result.final_accuracy: expected it, or returns; got neither"):
        from_text(to_text(record))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"result": {}}, "damaged at result.worst_class_accuracy: Field required"),
        ({"threat_card": None}, "damaged at threat_card"),
        ({"status": "fine"}, "does not match any of the expected tags: 'ok', 'refused', 'failed'"),
        ({"schema": 3}, "written by another version of FedGuard"),
        ({"seed": 7}, "it is the record of another trial: of cell"),
        ({"label": 3}, "damaged at label: Input should be a valid string"),
    ],
)
def test_a_sealed_record_of_another_form_is_named_with_what_is_wrong_and_the_rest_is_shown(store, change, said):
    path = a_record(store)
    path.write_bytes(to_text({**from_text(path.read_bytes()), **change}))
    shown = _command(["show", "small", "--store", str(store)]).replace("\n", "")
    assert f"{path}: " in shown and said in shown and "run the suite again to replace it" in shown
    rows = fg.open_run("small", store).rows()
    assert [row["status"] for row in rows].count("missing") == 1
    assert any("its record cannot be read" in str(row["reason"]) for row in rows)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_text("[" * 100_000), "recursion limit"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "damaged: Invalid JSON"),
        (lambda path: (path.unlink(), path.mkdir()), "expected a file; it is a folder"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "expected a file; it is a pipe"),
        (lambda path: (path.unlink(), path.symlink_to("/nowhere")), "it is a link that leads nowhere"),
        (lambda path: os.truncate(path, 1 << 40), "expected at most 67,108,864 bytes; it has 1,099,511,627,776"),
        (lambda path: path.write_text('{"schema": 3}'), "written by another version of FedGuard"),
    ],
)
def test_a_manifest_that_is_none_is_one_line_and_the_other_runs_are_shown(store, harm, said):
    from fedguard.app import data

    harm(store / "small" / "manifest.json")
    with pytest.raises(
        StoreError, match="manifest.json: cannot be read: .*Run the suite again; records are kept"
    ) as error:
        fg.open_run("small", store)
    assert said in str(error.value)
    found = {name: data.summary(store, name) for name in data.run_names(store)}
    assert found["other"].state == "complete" and said in found["small"].error


def test_escapes_in_names_reach_no_terminal(store):
    path = store / "small" / "manifest.json"
    path.write_text(path.read_text().replace('"sign_flip"', '"\\u001b[31msign_flip"'))
    shown = _command(["show", "small", "--store", str(store)])
    assert "\x1b" not in shown and "\\x1b[31m" in shown


def test_what_cannot_be_read_is_set_aside_by_the_next_run_and_run_again(store):
    """A folder, a pipe and a dangling link in the place of a record; a file in the place of a folder."""
    places = sorted(store.glob("small/cells/*"))[:4]
    before = {path.name: from_text(path.read_bytes())["result"] for path in places[3].iterdir()}
    for path, harm in zip(
        places, (lambda one: one.mkdir(), os.mkfifo, lambda one: one.symlink_to("/nowhere")), strict=False
    ):
        (path / "seed-000.json").unlink()
        harm(path / "seed-000.json")
    shutil.rmtree(places[3])
    places[3].write_text("x")
    run = fg.run(FEW, store=store, jobs=1)
    assert not run.broken and {row["status"] for row in run.rows()} == {"ok"}
    assert {path.name: from_text(path.read_bytes())["result"] for path in places[3].iterdir()} == before
    assert (
        len(list(store.glob("small/cells/*/*.broken"))) == 3
        and places[3].with_name(f"{places[3].name}.broken").is_file()
    )


def test_the_fuzzer_notices_a_reader_that_changes_waits_or_stays_silent(store, monkeypatch):
    """What it says of readers that are worse than ours."""
    path = a_record(store)

    def reading(read):
        monkeypatch.setattr("tests.fuzz.stores.readers", lambda store, deep=False: [("show", read)])
        return answers(store, Case("nothing", lambda store: None, names=path.name))

    assert "nobody names" in reading(lambda: "all is well")[0]
    assert "ZeroDivisionError" in reading(lambda: 1 / 0)[0]
    assert reading(lambda: os.kill(os.getpid(), signal.SIGKILL))[0].startswith("show: crash")
    assert reading(lambda: (path.write_text("x"), path.name)[1]) == ["store: changed by reading"]


def test_a_deep_configuration_and_one_that_is_not_finite_are_refused(store):
    path = a_record(store)
    record = from_text(path.read_bytes())
    deep: dict = {}
    for _ in range(60):
        deep = {"x": deep}
    for value in (deep, "PLACE"):
        text = json.dumps({**record, "config": {**record["config"], "more": value}, "sha256": ""}).replace(
            '"PLACE"', "1e999"
        )
        path.write_bytes(text.encode()[:-2] + hashlib.sha256(text.encode()).hexdigest().encode() + b'"}')
        assert [one.path for one in fg.open_run("small", store).broken] == [path]
