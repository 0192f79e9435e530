"""What a newcomer does first: a suite, a plug-in, an example, a list, a few trials."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import fedguard as fg
from fedguard.bench import starters
from fedguard.bench.running.progress import Listener
from fedguard.errors import ConfigError, UnknownName
from tests import forked
from tests.pages import shown
from tests.root import ROOT


def fedguard(*arguments: str, cwd: Path, code: int = 0, **more: str) -> str:
    done = forked.fedguard(*arguments, cwd=cwd, columns=90, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("flwr") is not None, reason="Flower is installed: see tests/flower/test_flower.py"
)
def test_without_flower_its_command_says_what_to_install(tmp_path):
    said = fedguard("flower", "check", str(ROOT / "tests" / "flower" / "app"), cwd=tmp_path, code=2)
    assert said.splitlines() == [
        "fedguard: app: expected Flower 1.41 or 1.42; it is not installed. pip install 'fedguard[flower]'"
    ]
    assert "--defense" in fedguard("flower", "check", "--help", cwd=tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "document"),
    [("attack", "pushback", "add_attack.md"), ("defense", "inverse_norm", "add_defense.md")],
)
def test_what_new_writes_is_what_the_documents_show(kind, name, document, tmp_path):
    fedguard("new", kind, name, cwd=tmp_path)  # in a process of its own: other tests bring plug-ins of these names
    for file in (f"{name}.py", f"{name}.yaml"):
        assert (tmp_path / file).read_text() == shown(document, file)


def test_a_command_knows_nothing_of_plugins_that_tests_brought(tmp_path, monkeypatch):
    (tmp_path / "pushback.py").write_text("")
    (tmp_path / "elsewhere").mkdir()
    before = sys.modules.pop("pushback", None)
    try:
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            importlib.import_module("pushback")
        fedguard("new", "attack", "pushback", cwd=tmp_path / "elsewhere")
    finally:  # what other tests import by this name is not this one
        del sys.modules["pushback"]
        if before is not None:
            sys.modules["pushback"] = before


def test_the_data_that_new_writes_are_those_of_the_documents(tmp_path):
    def of(text: str) -> str:
        return next(ast.unparse(node) for node in ast.parse(text).body if getattr(node, "name", "") == "Moons")

    fedguard("new", "data", "moons", cwd=tmp_path)
    assert of((tmp_path / "moons.py").read_text()) == of(shown("add_task.md", "moons.py"))


@pytest.mark.slow
def test_what_new_writes_passes_its_own_tests(tmp_path):
    for kind in starters.KINDS:
        said = fedguard("new", kind, f"my_{kind}", cwd=tmp_path)
        assert f"my_{kind}.py, my_{kind}.yaml, test_my_{kind}.py written." in said
    done = forked.called("pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


@pytest.mark.parametrize("name", ["median", "random", "Big", "1st", "class", "a-b", "../x"])
def test_new_takes_no_name_that_would_not_work(name):
    with pytest.raises(ConfigError, match="is taken by another defense or module|expected a name of small letters"):
        starters.plugin("defense", name)


def test_new_knows_its_kinds():
    with pytest.raises(UnknownName, match="unknown kind 'model'"):
        starters.plugin("model", "mine")


def test_files_are_written_all_or_none_and_never_over_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").write_text("mine")
    with pytest.raises(ConfigError, match="b is there already, and nothing was written"):
        starters.write({"a": "1", "b": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["b"] and (tmp_path / "b").read_text() == "mine"


def test_each_example_is_listed_and_copied_with_what_it_needs(tmp_path):
    listed = starters.examples()
    assert set(listed) == {path.stem for path in (ROOT / "examples").iterdir() if not path.name.startswith("_")}
    assert all(len(said) > 20 for said in listed.values())
    for name in listed:
        for file, text in starters.example(name).items():
            assert text == (ROOT / "examples" / file).read_text()
    assert set(starters.example("cross_device.yaml")) == {"cross_device.yaml", "many_writers.py"}
    assert set(starters.example("toy_plugin")) == {"toy_plugin/pyproject.toml", "toy_plugin/toy_attack.py"}
    with pytest.raises(UnknownName, match="unknown example 'quik'. Did you mean 'quick'"):
        starters.example("quik")
    assert "quick.yaml written. Next: fedguard run quick.yaml." in fedguard("examples", "quick", cwd=tmp_path)
    assert "quick.yaml is there already" in fedguard("examples", "quick", cwd=tmp_path, code=2)
    assert "quick" in fedguard("examples", cwd=tmp_path)
    said = fedguard("examples", "kubernetes", cwd=tmp_path)
    assert said == "kubernetes/fedguard.yaml, kubernetes/suite.yaml written.\n"  # it is no suite


def test_the_list_has_a_line_for_each(tmp_path):
    said = fedguard("list", "attack", cwd=tmp_path).splitlines()
    assert len(said) == len(fg.names("attack")) + 2
    assert max(map(len, said)) <= 90
    for name, line in zip(fg.names("attack"), said[1:], strict=False):
        assert line.split()[0] == name and len(line.split()) > 2


def test_the_first_suite_is_small_and_works_with_the_next_commands(tmp_path):
    fedguard("init", cwd=tmp_path)
    from fedguard.api import lay_out

    laid_out = lay_out(tmp_path / "suite.yaml")[1]
    rounds = laid_out.suite.training.rounds
    assert len(laid_out.cells) * len(laid_out.suite.seeds) * rounds <= 36 * 20  # some 12 s on one core
    fedguard("init", "--full", "full.yaml", cwd=tmp_path)
    assert len(lay_out(tmp_path / "full.yaml")[1].cells) * 5 >= 240


class Ear(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ran = 0
        self.counts: tuple[int, ...] = ()

    def begin(self, total, stored, refused, jobs):
        self.counts = (total, stored, refused)

    def note_record(self, record):
        self.ran += 1

    def note(self, text):
        self.notes.append(text)


def test_a_limit_runs_the_first_trials_and_says_how_many_are_left(tmp_path):
    suite = {
        "name": "few", "clients": {"total": 6, "malicious": 1}, "training": {"rounds": 1}, "seeds": 2,
        "matrix": {"attack": ["none", "alie", "worst_case(attacks=['ipm', 'alie'], selection_seeds=1)"], "defense": ["mean", "median"]},
    }  # fmt: skip
    ear = Ear()
    run = fg.run(suite, store=tmp_path, jobs=1, limit=3, listener=ear)
    assert (ear.ran, ear.counts[1]) == (3, 0)
    assert len(run.records) == 3
    left = re.search(r"(\d+) trials are left", ear.notes[0])
    assert left is not None
    again = Ear()
    fg.run(suite, store=tmp_path, jobs=1, limit=2, listener=again)
    assert (again.ran, again.counts[1]) == (2, 3)
    assert again.notes == [f"{int(left[1]) - 2} trials are left for another run without --limit, or with it."]
    with pytest.raises(ConfigError, match="limit: expected at least 1; got 0"):
        fg.run(suite, store=tmp_path, limit=0)


def test_shells_complete_commands(tmp_path):
    asked = {"_FEDGUARD_COMPLETE": "complete_bash", "COMP_WORDS": "fedguard ru", "COMP_CWORD": "1"}
    assert fedguard(cwd=tmp_path, **asked).split() == ["run"]


def test_a_training_begins_with_the_parameters_that_the_page_writes(tmp_path):
    """Both ways of the page: the line that writes a module's parameters, and the model that a run has stored."""
    page = (ROOT / "docs" / "algorithms.md").read_text().partition("## The first model")[2]
    (line,) = re.findall(r"`(numpy\.savez\(.*?\))` writes such a file", page)
    (tmp_path / "moons.py").write_text(shown("add_task.md", "moons.py"))
    still = shown("add_task.md", "moons.yaml").replace("rounds: 10, lr: 0.5", "rounds: 1, lr: 1.0e-12")
    module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    exec(line.replace("first.npz", str(tmp_path / "first.npz")), {"numpy": np, "module": module})
    wanted = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    file = "first.npz"
    for name in ("from_module", "from_run"):
        (tmp_path / f"{name}.yaml").write_text(still.replace("name: moons", f"name: {name}", 1))
        fedguard("run", f"{name}.yaml", "--set", f"training.first_model={file}", cwd=tmp_path)
        file = (
            f"runs/{name}/artifacts/{min(path.name for path in (tmp_path / 'runs' / name / 'artifacts').glob('*.npy'))}"
        )
        assert np.allclose(np.load(tmp_path / file), wanted, atol=1e-7)
