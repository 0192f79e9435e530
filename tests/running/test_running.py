"""Suites from start to end: records, resume, interruption, damage, failures, and the same numbers however they were run."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.app.data import sum_up
from fedguard.app.report import render_report
from fedguard.bench.records.record import from_text, reproducible, to_text
from fedguard.bench.records.store import RunFolder, set_aside, write_atomically
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.runner import RunInterrupt
from fedguard.bench.running.schedule import TrialSchedule
from fedguard.errors import ConfigError, NotAllowed, StoreError
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.stats import estimate
from tests.forked import Forked, fedguard
from tests.inline import pool

SUITE = {
    "name": "small",
    "task": {"partition": {"kind": "dirichlet", "alpha": 0.5}},
    "clients": {"total": 10, "malicious": 2},
    "training": {"rounds": 4, "momentum": 0.9},
    "seeds": 2,
    "matrix": {"attack": ["none", "alie", "model_replacement"], "defense": ["mean", "bucketing >> median", "fltrust"]},
}

PLUGIN = """
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
import torch
from fedguard.contracts import PoisonAttack, Sight

@dataclass(frozen=True, kw_only=True)
class Trouble(PoisonAttack):
    '''Does what its file says.'''
    name = "trouble"
    needs = (Sight.NOTHING,)
    def craft(self, view):
        what = Path(os.environ["TROUBLE"]).read_text()
        if what == "raise":
            raise ValueError("no such luck")
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "print":
            print("this must not disturb the protocol")
        if what == "sleep":
            time.sleep(0.3)
        if what == "hang":
            Path(os.environ["TROUBLE"]).with_name("hangs").touch()
            time.sleep(600)
        return torch.zeros(view.f, view.dim)
"""


class Ear(Listener):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ran: list[tuple[str, int]] = []
        self.counts: tuple[int, ...] = ()

    def begin(self, total, stored, refused, jobs):
        self.counts = (total, stored, refused)

    def note_record(self, record):
        self.ran.append((record["label"], record["seed"]))

    def note(self, text):
        self.notes.append(text)


def records(run: fg.Run) -> dict:
    return {trial: reproducible(record) for trial, record in run.records.items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The small suite, run once."""
    ear = Ear()
    run = fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=2, listener=ear)
    return run, ear


def test_every_position_has_a_row(finished):
    run, ear = finished
    rows = run.rows()
    assert len(rows) == 3 * 3 * 2
    assert ear.counts == (22, 0, 6)  # 9 positions and 2 cells of silent colluders
    assert len(ear.ran) == 16
    assert {(row["defense"], row["status"]) for row in rows} == {
        ("mean", "ok"), ("bucketing >> median", "ok"), ("fltrust", "refused"),
    }  # fmt: skip
    for row in run.with_status("refused"):
        assert "fltrust needs each client's update and a clean data set at the server" in row["reason"]


def test_columns_of_the_frame(finished):
    frame = finished[0].frame()
    assert list(frame.columns) == [
        "cell", "attack", "defense", "seed", "status", "reason", "goal", *FIGURES, "seconds", "flags",
    ]  # fmt: skip


def test_a_record_holds_controls_threat_card_and_figures(finished):
    run, _ = finished
    final = {(row["attack"], row["defense"], row["seed"]): row["final_accuracy"] for row in run.rows()}
    silent = {}
    for record in run.records.values():
        if record["label"].startswith("dropout against "):
            silent[record["label"].removeprefix("dropout against "), record["seed"]] = record["result"][
                "final_accuracy"
            ]
    assert len(silent) == 4
    for record in run.records.values():
        if record["status"] != "ok" or record["threat_card"]["attack"] == "dropout":
            continue
        assert {**from_text(to_text(record)), "sha256": None} == {**record, "sha256": None}
        assert record["config"]["training"]["rounds"] == 4
        seed, attack = record["seed"], record["threat_card"]["attack"] or "none"
        defense = " >> ".join(stage["name"] for stage in record["config"]["defense"])
        result = record["result"]
        assert result["final_accuracy"] == final[attack, defense, seed]
        assert result["controls"] == {
            "clean_mean": final["none", "mean", seed],
            "clean_defense": final["none", defense, seed],
            "silent_mean": silent["mean", seed] if attack != "none" else None,
            "silent_defense": silent[defense, seed] if attack != "none" else None,
            "attack_mean": final[attack, "mean", seed] if attack != "none" else None,
            "attack_defense": final[attack, defense, seed] if attack != "none" else None,
        }
        if attack != "none":
            assert result["accuracy_drop"] == final["none", defense, seed] - final[attack, defense, seed]
            assert result["absence"] == final["none", defense, seed] - silent[defense, seed]
            assert result["harm"] == silent[defense, seed] - final[attack, defense, seed]
        assert len(result["curve"]["accuracy"]) == 4
        assert result["final_accuracy"] == pytest.approx(
            np.mean(result["curve"]["accuracy"])
        )  # 4 evaluations, fewer than 5
        assert record["threat_card"]["dissimilarity"]["label_distance"] > 0
        assert record["cost"]["update_bytes_sent"] == 4 * 650 * 10 * 4
        assert record["environment"]["threads"] == 1


def test_threat_card_says_who_sees_what(finished):
    card = next(
        r["threat_card"] for r in finished[0].records.values() if r["label"] == "alie against bucketing >> median"
    )
    assert card["in_words"].startswith(
        "2 of 10 clients are malicious from round 1 to the end; together they see the honest clients' updates"
    )
    assert (card["goal"], card["acts_on"], card["attack_sees"]) == ("untargeted", ["update"], ["honest_updates"])
    assert (card["malicious"], card["assumed_f"], card["server_sees"]) == (2, 2, ["each_update"])
    assert (card["epsilon"], card["worst_hostile_share"]) == (None, 0.2)


def test_backdoor_success_is_measured_against_the_clean_model(finished):
    run, _ = finished
    for record in run.records.values():
        if record["label"] == "model_replacement against mean":
            result = record["result"]
            assert result["attack_success"] == result["attack_success_raw"] - result["attack_success_clean"]
            assert result["attack_success_raw"] > 0.8
            clean = next(r["cell"] for r in run.records.values() if r["label"] == "no attack against mean")
            assert run.folder.model_path(clean, record["seed"]).is_file()


#: One attack against the mean, with all that it is compared with.
ALONE = {**SUITE, "seeds": 1, "matrix": {"attack": ["model_replacement"]}, "defense": "mean"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """The store of `ALONE`, run once; to be copied."""
    return fg.run(ALONE, store=tmp_path_factory.mktemp("alone"), jobs=1).folder.path


@pytest.mark.parametrize("damage", ["gone", "cut", "pickled", "of another size"])
def test_without_a_stored_clean_model_it_is_trained_again(kept, tmp_path, damage):
    shutil.copytree(kept, tmp_path / kept.name)
    alone = fg.open_run(kept.name, tmp_path)
    folder = alone.folder
    trial = next(
        trial for trial, record in alone.records.items() if record["label"] == "model_replacement against mean"
    )
    before = reproducible(folder.read(*trial))
    for path in (folder.path / "artifacts").iterdir():
        if damage == "gone":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-100])
        else:
            np.save(path, np.zeros(3, dtype=object if damage == "pickled" else np.float32))
    folder.record_path(*trial).unlink()
    again = fg.run(ALONE, store=tmp_path, jobs=1)
    assert reproducible(again.records[trial]) == before


@pytest.mark.forked
def test_same_numbers_whatever_else_is_in_the_suite_and_however_many_processes(finished, tmp_path):
    run, _ = finished
    one = fg.run(
        {**SUITE, "name": "one", "seeds": [1], "matrix": {"attack": ["alie"]}, "defense": "bucketing >> median"},
        store=tmp_path,
        jobs=2,
    )
    everything = records(run)
    assert len(records(one)) == 6  # the cell and its five controls
    for trial, record in records(one).items():
        assert record == everything[trial]


def test_running_again_runs_nothing(finished):
    run, _ = finished
    before = {
        path: path.stat().st_mtime_ns
        for path in run.folder.path.rglob("seed-*.json")
        if "refused" not in path.read_text()
    }
    ear = Ear()
    again = fg.run(SUITE, store=run.folder.path.parent, listener=ear)
    assert ear.ran == []
    assert ear.counts == (22, 16, 6)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert records(again) == records(run)


def test_no_cache_runs_everything_and_gives_the_same(finished, tmp_path):
    run, _ = finished
    ear = Ear()
    suite = {**SUITE, "matrix": {"attack": ["none"], "defense": ["mean"]}}
    first = fg.run(suite, store=tmp_path)
    again = fg.run(suite, store=tmp_path, fresh=True, listener=ear)
    assert len(ear.ran) == 2
    assert records(first) == records(again)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "no JSON"])
def test_a_damaged_record_is_set_aside_and_run_again(kept, tmp_path, damage):
    shutil.copytree(kept, tmp_path / "small")
    run = fg.open_run("small", tmp_path)
    trial = next(trial for trial, record in run.records.items() if "model_replacement" in record["label"])
    path, before = run.folder.record_path(*trial), records(run)
    text = path.read_text()
    path.write_text({
        "cut": text[: len(text) // 2],
        "changed": text.replace('"final_accuracy": 0.', '"final_accuracy": 1.'),
        "empty": "",
        "no JSON": "\0" * 100,
    }[damage])  # fmt: skip
    assert [one.path for one in fg.open_run("small", tmp_path).broken] == [path]
    assert [row["status"] for row in fg.open_run("small", tmp_path).rows()] == ["missing"]
    ear = Ear()
    again = fg.run(ALONE, store=tmp_path, listener=ear)
    assert [label for label, _ in ear.ran] == ["model_replacement against mean"]
    assert "is damaged; it was set aside as seed-000.json.broken" in ear.notes[0]
    assert path.with_name("seed-000.json.broken").exists()
    assert records(again) == before


def test_set_aside_never_overwrites(tmp_path):
    for content in "ab":
        path = tmp_path / "seed-000.json"
        path.write_text(content)
        set_aside(path)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"a", "b"}


@pytest.fixture
def trouble(tmp_path, monkeypatch):
    """A suite with an attack that raises, kills its process, prints or sleeps, as it is told."""
    (tmp_path / "brings_trouble.py").write_text(PLUGIN)
    (tmp_path / "suite.yaml").write_text(
        "name: trouble\nplugins: [brings_trouble]\nseeds: 2\nclients: {total: 6, malicious: 1}\ntraining: {rounds: 5}\n"
        "matrix: {attack: [none, trouble], defense: [mean, median]}\n"
    )
    monkeypatch.setenv("TROUBLE", str(tmp_path / "what"))

    def suite(what: str) -> Path:
        (tmp_path / "what").write_text(what)
        return tmp_path / "suite.yaml"

    return suite


@pytest.mark.parametrize(
    ("what", "reason", "seeds"),
    [
        ("raise", "attack 'trouble' of {file}: ValueError: no such luck", 2),
        pytest.param("kill", "the worker process was lost: killed by SIGKILL", 1, marks=pytest.mark.forked),
    ],
)
def test_a_failed_trial_is_a_record_and_can_be_retried(trouble, tmp_path, monkeypatch, what, reason, seeds):
    ear = Ear()
    settings = [f"seeds={seeds}"]
    run = fg.run(trouble(what), store=tmp_path, jobs=2, overrides=settings, listener=ear)
    failed, reason = run.with_status("failed"), reason.format(file=tmp_path / "brings_trouble.py")
    assert [(row["attack"], row["reason"]) for row in failed] == [("trouble", reason)] * 2 * seeds
    assert len(run.with_status("ok")) == 2 * seeds  # the others are not harmed
    assert len(ear.notes) == 2 * seeds
    log = run.folder.log_path(failed[0]["cell"], 0).read_text()
    assert ("Traceback" in log and "brings_trouble.py" in log) if what == "raise" else reason in log

    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    again = Ear()
    stored = fg.run(trouble("fine"), store=tmp_path, overrides=settings, listener=again)
    assert len(stored.with_status("failed")) == 2 * seeds
    assert again.ran == []
    retried = fg.run(trouble("fine"), store=tmp_path, overrides=settings, retry_failed=True, listener=again)
    assert len(again.ran) == 2 * seeds
    assert {row["status"] for row in retried.rows()} == {"ok"}
    for record in retried.records.values():
        assert record["result"]["controls"]["clean_mean"] is not None
        if record["threat_card"]["attack"]:
            assert record["result"]["controls"]["attack_mean"] is not None


NEEDS_ALL = """
from dataclasses import dataclass
import torch
from fedguard.contracts import ROWS, WeightRule

@dataclass(frozen=True, kw_only=True)
class NeedsAll(WeightRule):
    name = "needs_all"
    needs = ROWS
    def weights(self, gram, context):
        if gram.n < 6:
            raise RuntimeError("somebody is silent")
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)
"""


@pytest.mark.forked
def test_a_failed_control_is_a_failure_that_is_named(tmp_path):
    """Every cell of the matrix runs; a control does not, the one in which malicious clients are silent."""
    (tmp_path / "needs_all.py").write_text(NEEDS_ALL)
    (tmp_path / "suite.yaml").write_text(
        "name: part\nplugins: [needs_all]\nseeds: 1\nclients: {total: 6, malicious: 1}\ntraining: {rounds: 2}\n"
        "matrix: {attack: [sign_flip], defense: [mean, needs_all]}\n"
    )
    ran = fedguard("run", "suite.yaml", cwd=tmp_path, columns=200)
    assert ran.returncode == 4, ran.stdout
    for said in (ran.stdout, fedguard("show", "part", cwd=tmp_path, columns=200).stdout):
        assert "not complete · 2 of 2 trials, 1 control failed" in said and "(1 control)" in said
        assert "Trials failed." in said and "fedguard run suite.yaml --retry-failed" in " ".join(said.split())
        assert "dropout (control) against needs_all: " in said and "RuntimeError: somebody is silent" in said
    run = fg.open_run("part", tmp_path / "runs")
    assert {row["status"] for row in run.rows()} == {"ok"}
    ((attack, defense),) = [(one.place["attack"], one.place["defense"]) for one in run.failures]
    assert (attack, defense) == ("dropout (control)", "needs_all")
    assert "dropout (control) against needs_all" in render_report(run).decode()
    assert (found := sum_up(run)).cells["failed"] == 1 and found.state == "not complete"
    baseline = fedguard("baseline", "save", "part", "--to", "baseline.json", cwd=tmp_path, columns=200)
    assert baseline.returncode == 2 and "dropout (control) against needs_all, seed 0, failed" in baseline.stderr


@pytest.mark.forked
def test_what_algorithms_print_does_not_disturb_the_workers(trouble, tmp_path):
    assert {row["status"] for row in fg.run(trouble("print"), store=tmp_path, jobs=1).rows()} == {"ok"}


@pytest.mark.forked
def test_interrupted_and_resumed_equals_uninterrupted(trouble, tmp_path, monkeypatch):
    """Ctrl-C in the middle of a suite: exit 130, nothing half written, no process left, and the rest comes on resume."""
    suite = trouble("sleep")
    command = ["fedguard", "run", str(suite), "--jobs", "2", "--store", str(tmp_path / "a")]
    process = Forked(command)
    cells = tmp_path / "a" / "trouble" / "cells"
    deadline = time.monotonic() + 60
    while (
        len(list(cells.glob("*/seed-*.json"))) < 9 and time.monotonic() < deadline
    ):  # the four clean ones, the four of silent colluders, and one more
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, error = process.wait(timeout=30), process.last_words()
    assert code == 130, error
    stored = len(list(cells.glob("*/seed-*.json")))
    assert f"interrupted: {stored} of 12 trials are stored. Run the same command to go on." in error
    assert 9 <= stored < 12
    assert not list(cells.rglob("*.tmp"))
    run = fg.open_run("trouble", tmp_path / "a")
    assert len(run.records) == stored and not run.with_status("failed")
    assert (
        0 < [row["status"] for row in run.rows()].count("missing") <= 12 - stored
    )  # rows are positions, not all trials

    trouble("fine")
    done = fedguard(*command[1:], cwd=tmp_path)
    assert f"{12 - stored} to run on 2 workers, {stored} stored already" in done.stdout
    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    whole = fg.run(suite, store=tmp_path / "b", jobs=1)
    assert records(fg.open_run("trouble", tmp_path / "a")) == records(whole)


def test_ctrl_c_between_storing_a_trial_and_counting_it_is_counted(tmp_path, monkeypatch):
    take_in, suite = TrialSchedule.take_in, {**SUITE, "matrix": {"attack": ["none"], "defense": ["mean", "median"]}}

    def interrupted(schedule, record):
        if len(schedule.final) == 2:
            monkeypatch.undo()
            raise KeyboardInterrupt
        take_in(schedule, record)

    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    monkeypatch.setattr(TrialSchedule, "take_in", interrupted)
    with pytest.raises(RunInterrupt, match="3 of 4 trials are stored"):
        fg.run(suite, store=tmp_path, jobs=1)
    assert len(list(tmp_path.glob("*/cells/*/seed-*.json"))) == 3


@pytest.mark.slow
def test_killed_outright_loses_only_what_was_in_flight(trouble, tmp_path):
    suite = trouble("sleep")
    command = [sys.executable, "-m", "fedguard.cli", "run", str(suite), "--jobs", "2", "--store", str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cells = tmp_path / "a" / "trouble" / "cells"
    deadline = time.monotonic() + 60
    while len(list(cells.glob("*/seed-*.json"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert _gone(tmp_path)  # they find their input closed and end
    trouble("fine")
    whole = fg.run(suite, store=tmp_path / "b", jobs=2)
    assert records(fg.run(suite, store=tmp_path / "a", jobs=2)) == records(whole)


def _script_without_main_guard(suite: Path) -> Forked:
    """Workers are processes of their own: they do not import the script that called `fg.run`."""
    script = suite.with_name("script.py")
    script.write_text(f"import fedguard as fg\nfg.run({str(suite)!r}, store={str(suite.with_name('a'))!r}, jobs=2)\n")
    return Forked(["python", str(script)])


def _deaf_command(suite: Path) -> Forked:
    """``fedguard run suite.yaml &`` in a script, whose shell has it ignore SIGINT."""
    command = ["fedguard", "run", str(suite), "--jobs", "2", "--store", str(suite.with_name("a"))]
    return Forked(command, deaf=True)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("start", "send", "code"),
    [
        (_script_without_main_guard, signal.SIGKILL, -signal.SIGKILL),
        pytest.param(_deaf_command, signal.SIGTERM, 130, marks=pytest.mark.slow),
    ],
)
def test_trials_run_in_workers_and_none_outlives_the_run_even_in_the_middle_of_a_trial(
    trouble, tmp_path, start, send, code
):
    process = start(trouble("hang"))
    deadline = time.monotonic() + 120
    while not (tmp_path / "hangs").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "hangs").exists() and _workers(tmp_path)
    process.send_signal(send)
    assert process.wait(timeout=60) == code
    assert _gone(tmp_path)
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        pipe.close()
    done = fg.open_run("trouble", tmp_path / "a")
    assert done.records and not done.with_status("failed") and "final accuracy in %" in str(done.table())


def _gone(folder: Path, seconds: float = 10) -> bool:
    """Whether all workers end within a while; those that do not are ended, so that a failure leaves nothing behind."""
    until = time.monotonic() + seconds
    while _workers(folder) and time.monotonic() < until:
        time.sleep(0.1)
    left = _workers(folder)
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    return not left


def _workers(folder: Path) -> list[str]:
    """The workers that were started with a plug-in's file in this folder."""
    alive = subprocess.run(
        ["pgrep", "-f", "fedguard.bench.running.worker"], capture_output=True, text=True
    ).stdout.split()
    return [pid for pid in alive if f"TROUBLE={folder}" in _environment(pid)]


def _environment(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    folder = RunFolder(tmp_path / "small")
    folder.create()
    with folder.lock(), pytest.raises(StoreError, match="another `fedguard run` is writing there"):
        fg.run(SUITE, store=tmp_path)


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written: .*Fix its permissions, or choose another --store"):
        fg.run(SUITE, store=tmp_path / "file")


def test_a_suite_in_which_nothing_may_run(tmp_path):
    masked = {**SUITE, "protocol": {"secure_aggregation": "full"}, "matrix": {"defense": ["krum", "median"]}}
    with pytest.raises(
        NotAllowed, match="nothing in this suite may run. no attack against krum: krum needs each client's"
    ):
        fg.run(masked, store=tmp_path)
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"clients": {"total": 5000, "malicious": 1}, "task": {"partition": "iid"}},
            "iid: expected at least one example per client; got 1437",
        ),
        ({"task": {"data": "wine", "model": "lenet5"}}, "lenet5 needs images [channels, height, width]"),
        ({"server": {"root_data": 5000}}, "server.root_data: expected fewer than the 1437 training examples; got 5000"),
    ],
)
def test_a_suite_that_does_not_fit_its_data(tmp_path, change, reason):
    """Found before anything runs, in one line."""
    with pytest.raises(NotAllowed) as caught:
        fg.run({**SUITE, **change, "matrix": {}}, store=tmp_path)
    assert reason in str(caught.value)
    assert not (tmp_path / "small").exists()


def test_an_attack_that_does_not_fit_the_data_is_refused(tmp_path):
    suite = {
        **SUITE,
        "seeds": 1,
        "matrix": {
            "task.data": ["digits", "wine"],
            "attack": ["none", "model_replacement", "model_replacement(target=5)"],
        },
    }
    rows = fg.run(suite, store=tmp_path).rows()
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "ok", "refused", "refused"]
    assert "pixel_patch(size=2) needs images of at least 2 x 2 pixels; got inputs of shape [13]" in rows[4]["reason"]
    assert "target: expected a class below 3; got 5" in rows[5]["reason"]


def test_a_refused_cell_is_run_once_it_may(tmp_path):
    suite = {**SUITE, "seeds": 1, "matrix": {"defense": ["mean", "fltrust"]}}
    first = fg.run(suite, store=tmp_path)
    assert [row["status"] for row in first.rows()] == ["ok", "refused"]
    second = fg.run({**suite, "server": {"root_data": 50}}, store=tmp_path)
    assert [row["status"] for row in second.rows()] == ["ok", "ok"]
    assert second.records[second.rows()[1]["cell"], 0]["threat_card"]["root_data"]["examples"] == 50


def test_a_record_is_plain_json_without_nan(finished):
    paths = [*(finished[0].folder.path / "cells").rglob("*.json")]
    assert len(paths) == len(finished[0].records)
    for path in paths:
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_diverged_training_is_said_and_stored(tmp_path):
    run = fg.run({**SUITE, "seeds": 1, "training": {"lr": 1e38, "rounds": 3}, "matrix": {}}, store=tmp_path)
    (row,) = run.rows()
    assert row["status"] == "ok"
    assert "diverged" in row["flags"] or "abandoned_rounds" in row["flags"]


def test_unknown_runs_and_figures(finished, tmp_path):
    run, _ = finished
    with pytest.raises(StoreError, match="run 'nope': not found in .* Runs there: small"):
        fg.open_run("nope", run.folder.path.parent)
    with pytest.raises(StoreError, match="There is none yet; make one with `fedguard run SUITE`"):
        fg.open_run("nope", tmp_path)
    with pytest.raises(ConfigError, match="unknown metric 'acuracy'"):
        run.table("acuracy")


def test_a_damaged_manifest(tmp_path):
    suite = {**SUITE, "seeds": 1, "matrix": {}}
    run = fg.run(suite, store=tmp_path)
    (run.folder.path / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read: .* Run the suite again; records are kept"):
        fg.open_run("small", tmp_path)
    ear = Ear()
    assert len(fg.run(suite, store=tmp_path, listener=ear).rows()) == 1
    assert ear.ran == []


def test_dry_run_changes_nothing(finished):
    run, _ = finished
    path = next(iter((run.folder.path / "cells").rglob("seed-000.json")))
    _, laid = lay_out(SUITE)
    assert TrialSchedule(laid, run.folder).pending() == []
    assert len(TrialSchedule(laid, RunFolder(path.parent / "none")).pending()) == 16
    assert not (path.parent / "none").exists()


def test_estimate_is_students_interval():
    """Known answer: for 1, 2, 3, 4 the deviation is 1.2910 and t(3) = 3.1824, hence 2.5 +- 2.0543."""
    found = estimate([1.0, 2, 3, 4])
    assert (found.mean, found.seeds) == (2.5, 4)
    assert found.half_width == pytest.approx(2.05426, abs=1e-5)
    assert estimate([7.0]).half_width is None


def test_no_field_of_a_record_is_lost_on_the_way_through_the_store(finished, tmp_path):
    """What the schema does not name is dropped when it is read, so it is refused when it is written."""
    record = next(iter(finished[0].records.values()))
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write(record)
    read = from_text(folder.record_path(record["cell"], record["seed"]).read_bytes())
    assert {**read, "sha256": None} == {**record, "sha256": None}
    for path in ("result", "environment", "cost", "threat_card"):
        with pytest.raises(AssertionError, match="no place in fedguard.bench.records.schema"):
            folder.write({**record, path: {**record[path], "novelty": 1}})


def _killed_while_writing(path: Path) -> Path:
    """A process is killed after it wrote the temporary file of this path, and before that took its name: the temporary file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = set(path.parent.iterdir())
    child = os.fork()
    if child == 0:
        os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        write_atomically(path, b"half")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = set(path.parent.iterdir()) - before
    return left


def test_what_a_killed_process_left_is_removed_by_the_next_run_and_a_living_one_s_is_not(tmp_path):
    suite = {"clients": {"total": 4}, "training": {"rounds": 1}, "seeds": 1, "matrix": {"attack": ["none"]}}
    run = fg.run(suite, store=tmp_path, jobs=1)
    folder, (cell,) = run.folder.path, {record["cell"] for record in run.records.values()}
    dead = [
        _killed_while_writing(path)
        for path in (
            folder / "cells" / cell / "seed-000.json",
            folder / "cells" / "gone" / "seed-000.json",
            folder / "logs" / "x.log",
            folder / "artifacts" / "x.npy",
            folder / "gate" / "1.json",
            folder / "manifest.json",
            folder / "audit.json",
        )
    ]
    elsewhere = folder / "cells" / cell / ".seed-000.json.another-host.12.tmp"  # the lock was free: it is dead as well
    kept = [
        folder / "gate" / f".2.json.{platform.node()}.{os.getppid()}.tmp",
        folder / "gate" / ".2.json.another-host.1.tmp",
    ]
    mine = folder / "cells" / "notes.tmp"
    for path in (elsewhere, *kept, mine):
        path.write_bytes(b"half")
    other = tmp_path / "other" / "cells" / ".seed-000.json.tmp"  # of another run of the store
    other.parent.mkdir(parents=True)
    other.write_bytes(b"half")
    assert records(fg.run(suite, store=tmp_path, jobs=1)) == records(run)
    assert not [path for path in (*dead, elsewhere) if path.exists()]
    assert all(path.exists() for path in (*kept, mine, other))


def test_a_run_of_another_suite_is_not_written_over(tmp_path, monkeypatch):
    """By a file of the same name elsewhere, by a mapping, by a suite that nobody named; a suite that was edited goes on."""
    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    monkeypatch.chdir(tmp_path)

    def written(place: str, name: str, rounds: int, attack: str = "none") -> Path:
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"{name}clients: {{total: 4, malicious: 1}}\ntraining: {{rounds: {rounds}}}\nseeds: 1\nmatrix: {{attack: [{attack}]}}\n"
        )
        return path

    def stored(name: str) -> bytes:
        return (tmp_path / "runs" / name / "manifest.json").read_bytes()

    first = fg.run(written("a/suite.yaml", "", 1))
    unnamed = {"clients": {"total": 5}, "training": {"rounds": 1}, "seeds": 1}
    assert first.name == "suite"
    one = fg.run(unnamed)
    assert re.fullmatch("untitled-[0-9a-f]{8}", one.name)
    assert fg.run({**unnamed, "seeds": 2}).name == one.name  # more seeds join it
    assert fg.run({**unnamed, "training": {"rounds": 2}}).name != one.name
    assert fg.run(written("a/My suite (2).yaml", "", 3)).name == "My-suite-2"
    with pytest.raises(StoreError, match="suite: expected a run of this suite; got one of another"):
        fg.run(written("c/suite.yaml", "", 2))

    named = fg.run(written("a/mine.yaml", "name: mine\n", 1))
    before = stored("mine")
    for other in (written("b/mine.yaml", "name: mine\n", 2), {**unnamed, "name": "mine"}):
        with pytest.raises(
            StoreError, match=r"mine: expected a run of this suite; got one of another, .*a/mine\.yaml, .*--name"
        ):
            fg.run(other)
        with pytest.raises(StoreError, match="got one of another"):
            fg.run(unnamed, name="mine")
    assert stored("mine") == before and records(fg.open_run("mine")) == records(named)

    moved = fg.run(written("c/mine.yaml", "name: mine\n", 1, "none, sign_flip"))  # elsewhere, with a cell in common
    assert moved.name == "mine" and len(moved.rows()) == 2
    ear = Ear()
    edited = fg.run(written("c/mine.yaml", "name: mine\n", 4), listener=ear)  # without one, in the same place
    assert edited.name == "mine" and len(edited.rows()) == 1
    assert any("the records of its 3 cells are kept" in note for note in ear.notes), ear.notes
    assert (first.folder.path / "cells").is_dir()


def test_a_suite_and_its_store_may_be_moved_together(tmp_path, monkeypatch):
    """A checkout of a CI lies elsewhere each time: an edited suite is the same one where both have moved."""
    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    for place, rounds in (("here", 1), ("there", 2)):
        if place == "there":
            shutil.move(tmp_path / "here", tmp_path / "there")
        path = tmp_path / place / "suites" / "mine.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name: mine\nclients: {{total: 4}}\ntraining: {{rounds: {rounds}}}\nseeds: 1\n")
        assert fg.run(path, store=tmp_path / place / "runs").name == "mine"


def test_a_run_of_an_earlier_version_goes_on_by_its_matrix(tmp_path, monkeypatch):
    """Another results version gives every cell another id, and a checkout of a CI lies where it likes."""
    monkeypatch.setattr("fedguard.bench.running.execute.LocalPool", pool)
    suite = {"name": "old", "clients": {"total": 4}, "training": {"rounds": 1}, "seeds": 1}
    run = fg.run(suite, store=tmp_path)
    told = dict(run.manifest)
    told |= {"results_version": 1, "source": "/elsewhere/old.yaml", "controls": ["0" * 12]}
    told["positions"] = [{**one, "cell": "1" * 12} for one in told["positions"]]
    path = run.folder.path / "manifest.json"
    path.write_text(json.dumps(told))
    with pytest.raises(StoreError, match="got one of another"):
        fg.run({**suite, "matrix": {"attack": ["none"], "training.lr": [0.1, 0.2]}}, store=tmp_path)
    assert fg.run(suite, store=tmp_path).manifest["results_version"] > 1
