"""Suites over an app of other people: run, gone on with, gated; and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

import fedguard as fg
from fedguard.bench.running.progress import Listener
from fedguard.bridges.jobs import TrialRequest
from fedguard.bridges.trial import run_trial
from fedguard.commands.app_check import below
from fedguard.errors import FedGuardError
from tests.forked import fedguard

APP = Path(__file__).parent / "app"
ROOT = APP.parents[2]


@pytest.fixture
def app(tmp_path):
    shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "app"


def suite(folder, **more):
    return {
        "name": "digits",
        "app": {"folder": str(folder), "set": {"num-server-rounds": 1}},
        "clients": {"total": 4, "malicious": 1},
        "matrix": {"attack": ["none", "ipm(tau=5)"], "defense": ["own", "median"]},
        "seeds": 1,
        **more,
    }


class Ended(Listener):
    """Which trials ran."""

    def __init__(self):
        self.trials = []

    def note_record(self, record):
        self.trials.append(record["label"])


def run(app, store, **more):
    heard = Ended()
    return fg.run(suite(app, **more), store=store, jobs=1, listener=heard), heard.trials


def changed(app, what, by):
    """Change the app's own training."""
    module = app / "digits" / "task.py"
    text = module.read_text()
    assert what in text
    module.write_text(text.replace(what, by))


def test_an_app_runs_as_a_suite_and_goes_on(app, tmp_path):
    matrix = {"attack": ["none", "ipm(tau=5)", "label_flip"], "defense": ["own", "median"]}
    found, ran = run(app, tmp_path, matrix=matrix)
    assert sorted(ran) == sorted(f"{a} against {d}" for a in ("no attack", "ipm(tau=5)") for d in ("own", "median"))
    rows = {(row["attack"], row["defense"]): row for row in found.rows()}
    assert {row["status"] for key, row in rows.items() if key[0] == "label_flip"} == {"refused"}
    record = found.ran[rows["ipm(tau=5)", "median"]["cell"], 0]
    four = {key: rows[key]["final_accuracy"] for key in rows if key[0] != "label_flip"}
    assert record["result"]["controls"] == {
        "clean_mean": four["none", "own"],
        "clean_defense": four["none", "median"],
        "attack_mean": four["ipm(tau=5)", "own"],
        "attack_defense": four["ipm(tau=5)", "median"],
    }
    assert record["result"]["accuracy_drop"] == four["none", "median"] - four["ipm(tau=5)", "median"]
    told = TrialRequest(str(app), {"num-server-rounds": 1}, "ipm(tau=5)", "median", 1, 4, 0)
    assert run_trial(told)["accuracy"] == record["result"]["curve"]["accuracy"]  # the same trial without the runner
    assert list(below(found, 0.999)) and not [line for line in below(found, 0.0) if "below" in line]

    assert run(app, tmp_path, matrix=matrix)[1] == []
    changed(app, "lr=lr", "lr=lr * 1.0")
    assert run(app, tmp_path, matrix={"attack": ["none"], "defense": ["own"]})[1] == ["no attack against own"]


def commands_of_the_page():
    page = (ROOT / "docs" / "flower.md").read_text()
    block = re.search(r"## Attack, defend and gate an app.*?```sh\n(.*?)```", page, re.DOTALL)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_what_the_page_shows_notices_a_weakness_that_came_into_the_app(tmp_path):
    """Its commands, one after the other, on its suite made short; before the second run the app is spoiled."""
    folder = tmp_path / "tests" / "flower" / "app"
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    asked = yaml.safe_load((ROOT / "examples" / "flower.yaml").read_text())
    assert asked["app"] == {"folder": "tests/flower/app"} and asked["seeds"] == 5
    asked["app"]["set"] = {"num-server-rounds": 1}
    asked |= {"clients": {"total": 4, "malicious": 1}, "seeds": 3, "gate": {"confirm": 3, "alpha": 0.2}}
    asked["matrix"] = {"attack": ["none", "ipm(tau=5)"], "defense": ["median"]}
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "flower.yaml").write_text(yaml.safe_dump(asked))
    run, show, save, again, gate = commands_of_the_page()
    assert run == again

    def ended(command):
        more = [] if command[1] == "show" else ["--jobs", "1"]
        return fedguard(*command[1:], *more, cwd=tmp_path)

    for command in (run, show, save, gate):
        said = ended(command)
        assert said.returncode == 0, said.stdout + said.stderr
        if command == show:
            assert "ipm(tau=5)" in said.stdout and "median" in said.stdout
    changed(folder, "y[part])", "(y[part] + 1) % 10)")  # it learns the wrong digits
    assert ended(again).returncode == 0
    failed = ended(gate)
    assert failed.returncode == 3 and "Regressed" in failed.stdout, failed.stdout + failed.stderr


@pytest.mark.processes
def test_the_command_ends_with_3_below_the_floor(tmp_path):
    """Worker and app start as they do where nothing is loaded yet."""
    said = fedguard(
        *("flower", "check", str(APP), "--attack", "ipm(tau=9)", "--defense", "median", "-f", "2", "-n", "6"),
        *("--seeds", "1", "--floor", "0.9", "--json", "--app-config", "num-server-rounds=1", "--jobs", "1"),
        cwd=tmp_path,
    )
    assert said.returncode == 3, said.stderr
    assert "ipm(tau=9) against median" in said.stderr and "below 90.0 %" in said.stderr
    assert {row["defense"] for row in json.loads(said.stdout)} == {"own", "median"}


def test_the_command_writes_a_suite(tmp_path):
    arguments = ["flower", "check", str(APP), "-a", "alie", "-f", "2", "--to", "mine.yaml"]
    assert fedguard(*arguments, cwd=tmp_path).returncode == 0
    asked = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert asked["matrix"] == {"attack": ["none", "alie"], "defense": ["own"]} and asked["clients"]["malicious"] == 2


def broken(app):
    (app / "digits" / "client_app.py").write_text("import nowhere_at_all")


@pytest.mark.parametrize(
    ("more", "spoil", "said"),
    [
        ({}, broken, "digits.client_app:app cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ({"clients": {"total": 4, "malicious": 4}}, None, "malicious: expected fewer than clients.total = 4; got 4"),
        ({"training": {"rounds": 3}}, None, "app: it brings its own training; expected nothing there"),
        ({"threat": {"last_round": 3}}, None, "app: it brings its own threat; expected nothing there but knowledge"),
        ({"app": {"folder": "nowhere"}}, None, "nowhere/pyproject.toml: expected a Flower app's project file"),
        ({"matrix": {"attack": ["ipn"]}}, None, "unknown attack 'ipn'"),
    ],
)
def test_mistakes_are_one_line(app, tmp_path, more, spoil, said):
    if spoil:
        spoil(app)
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite("app", **more)))
    ended = fedguard("run", "suite.yaml", "--jobs", "1", cwd=tmp_path)
    assert ended.returncode == 2, ended.stdout
    assert said in ended.stderr and len(ended.stderr.strip().splitlines()) == 1


def test_another_version_of_flower_is_one_line(app, tmp_path, monkeypatch):
    monkeypatch.setattr("fedguard.bench.running.apps.version", lambda name: "1.29.0")
    with pytest.raises(FedGuardError, match="expected Flower 1.41 or 1.42; got 1.29.0. pip install"):
        run(app, tmp_path)
