"""Reading a store for the dashboard: the cache follows the files, a summary holds for what is damaged, and it is fast."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time

import pytest

import fedguard as fg
from fedguard.app import data
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.results.run import Run

SUITE = {
    "name": "tiny",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 2},
    "seeds": 2,
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "median"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run.folder.path, tmp_path / "tiny")
    return Run.open("tiny", tmp_path)


def opened(run):
    return data.open_run(run.folder.path.parent, run.name)


def a_record(run):
    return run.folder.record_path(run.manifest["positions"][-1]["cell"], 1)


def test_a_run_is_read_once(copy):
    assert opened(copy) is opened(copy)


def test_an_added_a_changed_and_a_removed_record_are_seen(copy):
    path = a_record(copy)
    kept, before = path.read_bytes(), opened(copy)
    path.unlink()
    assert len(opened(copy).records) == len(before.records) - 1
    path.write_bytes(kept)
    assert len(opened(copy).records) == len(before.records)
    record = from_text(kept)
    path.write_bytes(to_text({**record, "result": {**record["result"], "final_accuracy": 0.125}}))
    assert 0.125 in {row["final_accuracy"] for row in opened(copy).rows()}


def test_a_file_of_the_same_size_with_an_older_time_is_seen(copy):
    before = data.stamp(copy.folder.path)
    os.utime(a_record(copy), ns=(1, 1))
    assert data.stamp(copy.folder.path) != before


def test_a_changed_manifest_is_seen(copy):
    assert opened(copy).seeds == [0, 1]
    (copy.folder.path / "manifest.json").write_text(json.dumps({**copy.manifest, "seeds": [0]}))
    assert opened(copy).seeds == [0]


def test_a_page_that_changes_its_rows_changes_nobody_elses(copy):
    opened(copy).rows()[0]["status"] = "spoilt"
    assert opened(copy).rows()[0]["status"] == "ok"


def test_a_cell_counts_as_its_worst_seed(copy):
    record = from_text(a_record(copy).read_bytes())
    a_record(copy).write_bytes(
        to_text({**record, "status": "failed", "reason": "no such luck", "result": None, "cost": None})
    )
    found = data.summary(copy.folder.path.parent, "tiny")
    assert found.cells == {"ok": 3, "failed": 1, "missing": 0, "refused": 0}
    assert found.state == "not complete"
    a_record(copy).write_text("{")
    found = data.summary(copy.folder.path.parent, "tiny")
    assert (found.cells["missing"], found.damaged, found.state) == (1, 1, "not complete")
    (copy.folder.path / "manifest.json").write_text("[]")
    assert data.summary(copy.folder.path.parent, "tiny").state.startswith("cannot be read: ")


def test_a_large_run_is_read_in_time(copy):
    """500 records in half a second: a tenth of what is measured in benchmarks/dashboard.py, with room for a busy machine."""
    positions = []
    for number in range(63):
        for one in copy.manifest["positions"]:
            cell = hashlib.sha256(f"{number} {one['cell']}".encode()).hexdigest()[:12]
            for seed in copy.seeds:
                record = from_text(copy.folder.record_path(one["cell"], seed).read_bytes())
                copy.folder.write({**record, "cell": cell})
            positions.append({"cell": cell, "swept": one["swept"]})
    (copy.folder.path / "manifest.json").write_text(json.dumps({**copy.manifest, "positions": positions}))
    begun = time.process_time()
    assert len(opened(copy).rows()) == 504
    assert time.process_time() - begun < 1.5
    begun = time.process_time()
    opened(copy).rows()
    assert time.process_time() - begun < 0.3
