"""One seed makes one record, whatever plug-ins draw from and keep, and in whichever order trials run."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.bench.flags.lint import lint
from fedguard.bench.flags.results import results_of
from fedguard.bench.records.record import reproducible
from fedguard.bench.results.run import Run
from fedguard.bench.running.progress import Listener
from fedguard.rng import Rng, global_generators

RULES = """
import random
from dataclasses import dataclass
import numpy as np
import torch
from fedguard.contracts import *

SEEN = []
COUNTS = {"rounds": 0}
DRAWS = np.random.default_rng(3)

@dataclass(frozen=True, kw_only=True)
class Shaken(CoordinateRule):
    "The mean, shaken by what it draws or keeps."
    name, needs, source, breakdown = "shaken", ROWS, "a test", "0"
    by: str = "nothing"
    met = []

    def reduce(self, block, context):
        by = {
            "numpy": lambda: np.random.random(),
            "python": lambda: random.random(),
            "torch": lambda: float(torch.rand(())),
            "list": lambda: SEEN.append(1) or len(SEEN),
            "dict": lambda: COUNTS.update(rounds=COUNTS["rounds"] + 1) or COUNTS["rounds"],
            "class": lambda: self.met.append(1) or len(self.met),
            "generator": lambda: DRAWS.random(),
            "nothing": lambda: 0.0,
        }[self.by]()
        return block.mean(0) * (1 + 0.1 * by)
"""


def numpys() -> list[int]:
    state: list[int] = np.random.get_state()[1].tolist()  # noqa: NPY002
    return state


class Ear(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def ran(folder: Path, store: str, by: list[str], seeds: list[int], ear: Listener | None = None) -> Run:
    (folder / "shaken_rules.py").write_text(RULES)
    rules = ", ".join(f"\"shaken(by='{one}')\"" for one in by)
    (folder / "suite.yaml").write_text(
        f"name: shaken\nplugins: [shaken_rules]\nseeds: {seeds}\nclients: {{total: 4}}\ntask: {{data: wine}}\n"
        f"training: {{rounds: 2}}\nmatrix: {{defense: [{rules}]}}\n"
    )
    return fg.run(folder / "suite.yaml", store=folder / store, jobs=1, listener=ear or Listener())


def of_the_rule(run: Run) -> dict[tuple[str, int], Any]:
    """Without those of the mean that it is compared with."""
    return {key: record for key, record in run.records.items() if "shaken" in record["label"]}


@pytest.mark.parametrize("by", ["numpy", "python", "torch"])
def test_global_generators_start_where_the_seed_says(tmp_path: Path, by: str) -> None:
    before = random.getstate(), numpys(), torch.get_rng_state()
    ear = Ear()
    both = ran(tmp_path, "both", [by], [0, 1], ear)
    alone = ran(tmp_path, "alone", [by], [1])
    for key, record in alone.records.items():
        assert reproducible(both.records[key]) == reproducible(record)
    assert "drew" not in next(one for one in both.records.values() if "shaken" not in one["label"])["environment"]
    whose = {"numpy": "numpy's", "python": "Python's", "torch": "torch's"}[by]
    assert {tuple(one["environment"]["drew"]) for one in of_the_rule(both).values()} == {(whose,)}
    (note,) = ear.notes
    assert f"defense 'shaken' of {tmp_path}/shaken_rules.py draws from {whose} global generator" in note
    after = random.getstate(), numpys(), torch.get_rng_state()
    assert before[:2] == after[:2] and torch.equal(before[2], after[2])


@pytest.mark.forked
def test_what_a_module_keeps_is_named_and_the_next_trial_does_not_find_it(tmp_path: Path) -> None:
    ways = {"list": "SEEN", "dict": "COUNTS", "class": "Shaken", "generator": "DRAWS"}
    ear = Ear()
    both = ran(tmp_path, "both", [*ways, "nothing"], [0, 1], ear)
    alone = ran(tmp_path, "alone", [*ways], [1])
    for key, record in alone.records.items():
        assert reproducible(both.records[key]) == reproducible(record), record["label"]
    changed = {record["label"]: record["environment"].get("changed") for record in of_the_rule(both).values()}
    assert len(changed) == 5
    for by, name in ways.items():
        (said,) = [what for label, what in changed.items() if by in label]
        assert said == [f"shaken_rules.{name}"]
    assert sum(what is None for what in changed.values()) == 1
    assert any(
        f"defense 'shaken' of {tmp_path}/shaken_rules.py changed shaken_rules.SEEN" in note for note in ear.notes
    )
    (flag,) = [one for one in lint(results_of(both)).findings if one.flag == "keeps_state"]
    assert "2 trials left shaken_rules." in flag.said


def test_nothing_of_fedguards_draws_from_global_generators(tmp_path: Path) -> None:
    run = ran(tmp_path, "runs", ["nothing"], [0])
    for record in run.records.values():
        assert "drew" not in record["environment"] and "changed" not in record["environment"]


def test_generators_stand_again_where_they_stood_after_an_error() -> None:
    before = numpys()
    with pytest.raises(ZeroDivisionError), global_generators(Rng(0)) as drawn:
        assert drawn() == []
        np.random.random()  # noqa: NPY002
        assert drawn() == ["numpy's"]
        raise ZeroDivisionError
    assert numpys() == before


@pytest.mark.processes
@pytest.mark.parametrize("place", ["beside", "below"])
def test_workers_find_a_plug_in_that_stands_beside_the_script_that_runs_a_mapping(tmp_path: Path, place: str) -> None:
    scripts, elsewhere = tmp_path / "scripts", tmp_path / "elsewhere"
    modules = scripts if place == "beside" else scripts / "rules"
    modules.mkdir(parents=True)
    elsewhere.mkdir()
    (modules / "shaken_rules.py").write_text(RULES)
    added = "" if place == "beside" else f"import sys; sys.path.insert(0, {str(modules)!r})"
    (scripts / "script.py").write_text(
        textwrap.dedent(f"""
        {added}
        import fedguard as fg
        run = fg.run({{"name": "mapped", "plugins": ["shaken_rules"], "seeds": 1, "clients": {{"total": 4}},
                      "task": {{"data": "wine"}}, "training": {{"rounds": 1}}, "matrix": {{"defense": ["shaken"]}}}}, jobs=1)
        print([row["status"] for row in run.rows()])
        """)
    )
    done = subprocess.run(
        [sys.executable, str(scripts / "script.py")], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("['ok']"), done.stdout + done.stderr
