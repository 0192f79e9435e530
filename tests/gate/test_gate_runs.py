"""The gate on real trainings, from the shell's side: a baseline, a change, a verdict, an exit code."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.gate.baseline import read
from fedguard.bench.gate.snapshot import plan_of
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.gate.work import gate, make_baseline
from fedguard.bench.records.store import RunFolder
from fedguard.bench.running import code
from fedguard.bench.running.execute import execute
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.schedule import TrialSchedule
from fedguard.commands.gate import app as baseline_commands
from fedguard.commands.gate import gate as gate_command
from fedguard.errors import ConfigError, FedGuardError

RULE = '''
from dataclasses import dataclass
from fedguard.contracts import CoordinateRule, Sight

@dataclass(frozen=True, kw_only=True)
class Gated(CoordinateRule):
    """The mean, scaled."""
    name = "gated"
    source = "a test"
    needs = (Sight.EACH_UPDATE,)
    def reduce(self, block, context):
        return block.mean(0) * {factor}
'''

SUITE = """\
name: tiny
plugins: [gated_rules]
clients: {total: 4, malicious: 1}
training: {rounds: ROUNDS}
seeds: 2
gate: {confirm: 3, metrics: {final_accuracy: {margin: MARGIN}}}
matrix:
  attack: [none, ipm]
  defense: DEFENSES
"""


class Counted(Listener):
    """Which trials ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def note_record(self, record):
        self.ran.append((record["label"], record["seed"]))


class Place:
    """A folder with a suite and its plug-in, and a store."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.store, self.file = folder, store, folder / "b.json"

    def write(self, factor=1.0, rounds=4, margin=0.02, defenses="[mean, gated, fltrust]") -> Path:
        (self.folder / "gated_rules.py").write_text(RULE.replace("{factor}", str(factor)))
        text = SUITE.replace("ROUNDS", str(rounds)).replace("MARGIN", str(margin)).replace("DEFENSES", defenses)
        (self.folder / "suite.yaml").write_text(text)
        return self.folder / "suite.yaml"

    def run(self, **settings) -> fg.Run:
        return fg.run(self.write(**settings), store=self.store, jobs=1)

    def judge(self, *options: str, code: int):
        """The verdict of the command, which must end with this exit code."""
        done = command("gate", "tiny", "--baseline", str(self.file), "--store", str(self.store), "-j", "1", *options)
        assert done.exit_code == code, done.output
        return verdicts(RunFolder(self.store / "tiny"))[-1]


def command(*arguments: str):
    app = typer.Typer()
    app.command()(gate_command)
    app.add_typer(baseline_commands)
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run, and its baseline made by the command; the plug-in is imported from here in all tests."""
    place = Place(tmp_path_factory.mktemp("suite"), tmp_path_factory.mktemp("store"))
    place.run()
    done = command("baseline", "save", "tiny", "--to", str(place.file), "--store", str(place.store), "-j", "1")
    assert done.exit_code == 0, done.output
    assert "b.json written" in done.output.replace("\n", "")
    yield place
    sys.modules.pop("gated_rules", None)
    sys.path[:] = [path for path in sys.path if path != str(place.folder)]


@pytest.fixture
def place(saved, tmp_path):
    """A store of one's own, with the run of the baseline in it."""
    shutil.copytree(saved.store / "tiny", tmp_path / "store" / "tiny")
    yield Place(saved.folder, tmp_path / "store")
    saved.write()


def test_the_baseline_has_every_cell_on_both_kinds_of_seeds(saved):
    base = read(saved.file)
    assert base.confirmation == (20_000, 20_001, 20_002)
    for position in base.snapshot.positions:
        cell = base.snapshot.cells[position.cell]
        refused = position.swept["defense"] == "fltrust"
        assert cell.status == ("refused" if refused else "ok")
        assert refused or set(cell.values["final_accuracy"]) == {0, 1, *base.confirmation}
    trained = fg.open_run(saved.store / "tiny" / "confirmation").rows()
    for row in trained:
        assert base.snapshot.cells[row["cell"]].values["final_accuracy"][row["seed"]] == row["final_accuracy"]
    assert set(base.snapshot.code) == {"fedguard", "gated_rules"}


def test_an_unchanged_run_is_identical_and_nothing_is_trained(place):
    listener = Counted()
    verdict = gate(fg.open_run("tiny", place.store), place.file, listener=listener)
    assert {one.verdict for one in verdict.judgments} == {"identical"} and len(verdict.judgments) == 4
    assert verdict.exit_code == 0 and verdict.warnings == () and listener.ran == []
    assert place.judge(code=0).counts["identical"] == 4


def test_a_rule_made_worse_is_confirmed_on_fresh_seeds(saved, place):
    """The old rule's trainings on the fresh seeds lie in the store as well: they must not stand for those of the new one."""
    shutil.copytree(saved.store / "tiny" / "confirmation", place.store / "tiny" / "confirmation", dirs_exist_ok=True)
    place.run(factor=0.1)
    verdict = place.judge("--quiet", code=3)
    words = {one.label: one.verdict for one in verdict.judgments}
    assert words == {
        "no attack against mean": "identical",
        "ipm against mean": "identical",
        "no attack against gated": "regressed",
        "ipm against gated": "regressed",
    }
    worse = [one for one in verdict.judgments if one.verdict == "regressed"]
    assert all(one.confirmed_on == (20_000, 20_001, 20_002) and one.p_value < 0.05 for one in worse)
    fresh = fg.open_run(place.store / "tiny" / "confirmation")
    for one in worse:
        after = [row["final_accuracy"] for row in fresh.rows() if row["cell"] == one.cell]
        assert one.after == pytest.approx(sum(after) / 3)
    (warning,) = gate(fg.open_run("tiny", place.store), place.file).warnings
    assert re.fullmatch(r"the code of the plug-in gated_rules was [0-9a-f]{8}, is [0-9a-f]{8}\.", warning)
    # Fresh seeds are trained anew each time: no digest of code knows all that a plug-in reads.
    listener = Counted()
    assert gate(fg.open_run("tiny", place.store), place.file, listener=listener).exit_code == 3
    assert len(listener.ran) >= 6


def test_a_run_made_by_other_code_is_never_a_pass(place, monkeypatch):
    place.write(factor=0.1)  # and the suite is not run again
    verdict = place.judge(code=4)
    assert "3 cells were made by other code of gated_rules than is installed" in verdict.incompatible[0]
    assert "--fresh" in verdict.incompatible[0]
    place.write()
    assert place.judge(code=0).incompatible == ()
    monkeypatch.setattr(code, "own_code", lambda: "another FedGuard")
    assert "made by other code of fedguard than" in place.judge(code=4).incompatible[0]
    with pytest.raises(ConfigError, match="made by other code"):
        make_baseline(fg.open_run("tiny", place.store), "anyway")


def test_trials_of_other_code_of_fedguard_run_again_where_the_code_must_be_the_same(place, monkeypatch):
    run = fg.open_run("tiny", place.store)
    assert TrialSchedule(plan_of(run), run.folder, same_code=True).pending() == []
    monkeypatch.setattr(code, "own_code", lambda: "another FedGuard")
    assert TrialSchedule(plan_of(run), run.folder).pending() == []
    assert len(TrialSchedule(plan_of(run), run.folder, same_code=True).pending()) == 6 * 2


def test_a_cell_that_is_gone_cannot_be_judged(place):
    place.run(defenses="[mean, fltrust]")
    verdict = place.judge(code=4)
    assert verdict.counts["missing"] == 2 and verdict.counts["identical"] == 2
    assert {one.why for one in verdict.judgments if one.verdict == "missing"} == {"the run does not have it."}


def test_changed_settings_cannot_be_judged_and_are_named(place):
    place.run(rounds=3)
    verdict = place.judge(code=4)
    assert {one.why for one in verdict.judgments} == {"configured otherwise: training.rounds was 4, is 3."}


def test_loosened_thresholds_need_a_new_baseline(place):
    place.run(margin=0.5)
    verdict = place.judge(code=4)
    assert verdict.counts["identical"] == 4 and "the gate asks for less" in verdict.incompatible[0]
    assert verdict.warnings == ("the gate's thresholds changed: gate.metrics.final_accuracy.margin was 0.02, is 0.5.",)


def test_a_lost_record_cannot_be_judged(place):
    run = fg.open_run("tiny", place.store)
    cell = next(row["cell"] for row in run.rows() if row["defense"] == "gated")
    (place.store / "tiny" / "cells" / cell / "seed-001.json").unlink()
    verdict = place.judge(code=4)
    assert [one.why for one in verdict.judgments if one.verdict == "missing"] == ["missing: not run yet"]


def test_the_reports_are_written_where_they_are_asked_for(place, tmp_path):
    summary, xml, out = tmp_path / "summary.md", tmp_path / "gate.xml", tmp_path / "gate.json"
    summary.write_text("what other steps said\n")
    place.judge("--to", f"md:{summary}", "--to", str(xml), "--to", str(out), code=0)
    assert summary.read_text().startswith("what other steps said\n## Passed: no drop beyond its margin")
    assert ElementTree.parse(xml).getroot()[0].get("tests") == "5"
    assert json.loads(out.read_text())["exit_code"] == 0
    done = command("gate", "tiny", "--baseline", str(place.file), "--store", str(place.store), "--json")
    assert json.loads(done.output)["headline"].startswith("passed")  # and nothing else on the output


def test_update_keeps_history_and_wants_a_reason(place, tmp_path):
    file = shutil.copy(place.file, tmp_path / "b.json")
    options = ("tiny", "--baseline", str(file), "--store", str(place.store), "-j", "1")
    refused = command("baseline", "update", *options, "--reason", "  ")
    assert isinstance(refused.exception, ConfigError) and refused.exception.exit_code == 2
    assert Path(file).read_text() == place.file.read_text()
    place.run(factor=0.5)
    done = command("baseline", "update", *options, "--reason", "half a step is what we want")
    assert done.exit_code == 0, done.output
    assert "2 of 4 cells differ" in " ".join(done.output.split())
    assert [one.reason for one in read(file).history] == ["saved", "half a step is what we want"]
    assert gate(fg.open_run("tiny", place.store), file).exit_code == 0


def test_show_and_save(saved):
    shown = command("baseline", "show", str(saved.file))
    assert shown.exit_code == 0 and "2 seeds, 3 more to confirm drops" in " ".join(shown.output.split())
    assert command("baseline", "show", str(saved.file), "--json").output == saved.file.read_text()
    again = command("baseline", "save", "tiny", "--to", str(saved.file), "--store", str(saved.store))
    assert isinstance(again.exception, ConfigError) and "--force" in str(again.exception)
    nowhere = command("gate", "tiny", "--baseline", str(saved.folder / "none.json"), "--store", str(saved.store))
    assert isinstance(nowhere.exception, FedGuardError) and nowhere.exception.exit_code == 2


def test_a_plan_of_some_cells_keeps_their_controls(saved):
    whole = plan_of(fg.open_run("tiny", saved.store))
    attacked = next(cell for swept, cell in whole.positions if swept == {"attack": "ipm", "defense": "gated"})
    part = whole.only([attacked.id])
    assert [cell.id for _, cell in part.positions] == [attacked.id]
    assert {cell.label for cell in part.cells} == {
        "no attack against mean", "no attack against gated", "dropout against mean", "dropout against gated", "ipm against mean",
        "ipm against gated",
    }  # fmt: skip
    assert {cell.id for cell in part.cells} <= {cell.id for cell in whole.cells}


def test_a_run_is_opened_where_it_lies(place, tmp_path):
    """`execute` runs what is missing and no more."""
    run = fg.open_run("tiny", place.store)
    listener = Counted()
    assert execute(plan_of(run), run.folder, jobs=1, listener=listener).rows() == run.rows()
    assert listener.ran == []
