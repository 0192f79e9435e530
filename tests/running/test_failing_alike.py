"""A run of which every trial fails alike stops after the first three; one in which anything succeeds goes on."""

from __future__ import annotations

import pytest

import fedguard as fg
from fedguard.bench.running.failure_monitor import FailureMonitor
from fedguard.bench.running.progress import Listener

#: The network of a user, which fails in its forward pass where a file says so.
NETS = """
from pathlib import Path
from torch import nn

def net(shape, classes):
    class Fails(nn.Linear):
        def forward(self, x):
            if Path(__file__).with_name("fails").exists() and len(x) > 2:
                raise RuntimeError("no such luck")
            return super().forward(x)
    return nn.Sequential(nn.Flatten(), Fails(64, classes))
"""
SUITE = (
    "name: alike\nseeds: {seeds}\ntask: {{model: 'nets:net', data: digits}}\nclients: {{total: 6, malicious: 1}}\n"
    "training: {{rounds: 1, batch_size: 8}}\nmatrix: {{attack: [{attacks}], defense: [mean, median]}}\n"
)


class Ear(Listener):
    def __init__(self):
        self.notes, self.ran, self.total = [], 0, 0

    def begin(self, total, stored, refused, jobs):
        self.total = total

    def note_record(self, record):
        self.ran += record["status"] != "refused"

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)

    def written(seeds, attacks="none, sign_flip, ipm", fails=True):
        (tmp_path / "suite.yaml").write_text(SUITE.format(seeds=seeds, attacks=attacks))
        (tmp_path / "fails").touch() if fails else (tmp_path / "fails").unlink(missing_ok=True)
        return tmp_path / "suite.yaml"

    return written


def test_a_run_of_which_every_trial_fails_alike_stops_after_three(suite, tmp_path):
    ear = Ear()
    run = fg.run(suite(5), store=tmp_path / "runs", jobs=1, listener=ear)
    assert ear.ran == 3 == len(run.failures)
    (stopped,) = [note for note in ear.notes if note.startswith("stopped:")]
    assert f"{ear.total - 3} are left" in stopped and "no such luck" in stopped
    assert len({record["cell"] for record in run.records.values()}) == 3  # and not one cell with three seeds
    again = Ear()
    repaired = fg.run(suite(1, fails=False), store=tmp_path / "runs", jobs=1, listener=again, retry_failed=True)
    assert {row["status"] for row in repaired.rows()} == {"ok"}


def test_what_has_succeeded_once_is_not_stopped(suite, tmp_path):
    fg.run(suite(1, attacks="none", fails=False), store=tmp_path / "runs", jobs=1, listener=Listener())
    ear = Ear()
    run = fg.run(suite(3, attacks="none"), store=tmp_path / "runs", jobs=1, listener=ear)
    assert len(run.with_status("failed")) == 4 and not [note for note in ear.notes if note.startswith("stopped:")]


def record(cell: str, seed: int, reason: str = "no such luck", status: str = "failed") -> dict:
    return {"cell": cell, "seed": seed, "status": status, "reason": reason}


TRIALS = [(cell, seed) for cell in "abcd" for seed in range(4)]


def heard(*records: dict, trials=TRIALS, hopeful=True) -> str | None:
    alike = FailureMonitor(trials, hopeful)
    for one in records:
        alike.take_in(one)
    return alike.reason


def test_three_of_different_cells_and_of_one_reason():
    a, b, c = record("a", 0), record("b", 0), record("c", 0)
    assert heard(a, b) is None
    assert heard(a, b, c) == "no such luck"
    assert heard(a, b, c, hopeful=False) is None
    assert heard(a, b, record("c", 0, "something else")) is None
    assert heard(a, b, record("c", 0, status="ok"), record("d", 0)) is None
    assert heard(a, b, record("c", 0, "seed 1: lost"), record("d", 0, "seed 2: lost")) is None
    numbered = [record(cell, 0, f"node {place} of 9 is gone") for place, cell in enumerate("abc")]
    assert heard(*numbered) == "node 2 of 9 is gone"
    of_one = [record("a", seed) for seed in range(4)]
    assert heard(*of_one) is None  # the other cells may be well
    assert heard(*of_one[:3], trials=[("a", seed) for seed in range(9)]) == "no such luck"


def test_cells_that_have_not_failed_come_first():
    alike = FailureMonitor(TRIALS, True)
    alike.take_in(record("a", 0))
    assert [cell for cell, _ in alike.sort_trials(TRIALS[1:])] == [*"bbbbccccdddd", *"aaa"]
    alike.take_in(record("b", 0, status="ok"))
    assert alike.sort_trials(TRIALS) == TRIALS
