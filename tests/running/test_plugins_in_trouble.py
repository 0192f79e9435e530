"""Plug-ins that hang, change what trials share, or return what they must not: each is named, and the others go on."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.bench.running.progress import Listener
from fedguard.bench.running.shared_state import diff_shared_state, snapshot_shared_state
from fedguard.errors import ConfigError, PluginError
from tests.forked import fedguard

HERE = Path.cwd()
HEAD = """
import os, time
from dataclasses import dataclass
import numpy as np
import torch
from fedguard.contracts import *
"""

HANGS = """
class Hangs(PoisonAttack):
    "Never comes back, unless a file says that it is repaired."
    name = "hangs"
    needs = (Sight.HONEST_UPDATES,)
    def craft(self, view):
        while not os.path.exists(os.path.join(os.path.dirname(__file__), "repaired")):
            time.sleep(0.1)
        return view.honest.mean(0).expand(view.f, -1)
"""


class Ear(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ran: list[str] = []

    def note_record(self, record):
        self.ran.append(record["label"])

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def suite(tmp_path, request):
    """Writes a module with plug-ins and a suite that names it."""

    def write(code: str, matrix: str, rounds: int = 1) -> Path:
        module = f"plug_{abs(hash((request.node.name, code))) % 10**9}"
        (tmp_path / f"{module}.py").write_text(HEAD + code)
        (tmp_path / "suite.yaml").write_text(
            f"name: trouble\nplugins: [{module}]\nseeds: 1\nclients: {{total: 8, malicious: 2}}\n"
            f"training: {{rounds: {rounds}}}\nmatrix: {matrix}\n"
        )
        return tmp_path / "suite.yaml"

    return write


@pytest.mark.forked
def test_a_trial_that_takes_too_long_has_failed_and_the_run_goes_on(suite, tmp_path):
    path, ear = suite(HANGS, "{attack: [none, hangs], defense: [mean]}"), Ear()
    run = fg.run(path, store=tmp_path / "runs", jobs=1, timeout=2, listener=ear)
    assert [(row["attack"], row["status"]) for row in run.rows()] == [("none", "ok"), ("hangs", "failed")]
    failed = run.with_status("failed")
    assert failed[0]["reason"] == "timed out after 2 s"
    (note,) = ear.notes
    assert note.startswith("failed: hangs against mean, seed 0: timed out after 2 s (log: ")
    log = run.folder.log_path(failed[0]["cell"], 0).read_text()
    assert re.search(r"plug_\d+.py\", line \d+ in craft", log)  # where it stood

    (tmp_path / "repaired").write_text("")
    assert len(fg.run(path, store=tmp_path / "runs", jobs=1).with_status("failed")) == 1
    again = fg.run(path, store=tmp_path / "runs", jobs=1, retry_failed=True)
    assert {row["status"] for row in again.rows()} == {"ok"}


@pytest.mark.slow
@pytest.mark.forked
def test_a_plugin_that_hangs_before_the_first_round_is_ended_too(suite, tmp_path):
    code = HANGS.replace("def craft(self, view)", "def poison(self, examples, view)").replace(
        "view.honest.mean(0).expand(view.f, -1)", "examples"
    )
    code = code.replace("HONEST_UPDATES", "OWN_DATA")
    path = suite(code, "{attack: [none, hangs], defense: [mean]}")
    run = fg.run(path, store=tmp_path / "runs", jobs=1, timeout=10)
    assert [row["status"] for row in run.rows()] == ["ok", "failed"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_that_is_none(tmp_path, seconds):
    with pytest.raises(ConfigError, match="timeout: expected more than 0 seconds and less than 1e9; got"):
        fg.run({"name": "x"}, store=tmp_path, timeout=seconds)


MEDDLES = """
@dataclass(frozen=True, kw_only=True)
class Meddles(PoisonAttack):
    "Changes what trials share, once it has seen that nobody did so before."
    name = "meddles"
    needs = (Sight.HONEST_UPDATES,)
    what: str = "dtype"
    def craft(self, view):
        assert torch.get_default_dtype() == torch.float32 and "MEDDLED" not in os.environ
        if self.what == "dtype":
            torch.set_default_dtype(torch.float64)
        if self.what == "environment":
            os.environ["MEDDLED"] = "a secret"
        return torch.zeros(view.f, view.dim)
"""


@pytest.mark.forked
def test_what_a_trial_changes_for_others_is_said_and_they_get_a_fresh_process(suite, tmp_path):
    attacks = "[none, meddles, 'meddles(what=\"environment\")', 'meddles(what=\"nothing\")']"
    path, ear = suite(MEDDLES, f"{{attack: {attacks}, defense: [mean]}}"), Ear()
    run = fg.run(path, store=tmp_path / "runs", jobs=1, listener=ear)
    assert {row["status"] for row in run.rows()} == {"ok"}
    assert len(ear.notes) == 2
    assert re.search(
        r"attack 'meddles' of .*plug_\d+.py changed torch.get_default_dtype\(\) from torch.float32 to torch.float64. Later",
        ear.notes[0],
    )
    assert "changed os.environ['MEDDLED']." in ear.notes[1] and "secret" not in ear.notes[1]
    said = {
        record["label"]: record["environment"]["changed"]
        for record in run.records.values()
        if "changed" in record["environment"]
    }
    assert list(said.values()) == [
        ["torch.get_default_dtype() from torch.float32 to torch.float64"], ["os.environ['MEDDLED']"],
    ]  # fmt: skip


CHANGES = {
    "torch.get_default_dtype()": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "torch.get_default_device()": (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
    "torch.get_num_threads()": (lambda: torch.set_num_threads(7), lambda: torch.set_num_threads(1)),
    "torch.is_grad_enabled()": (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
    "torch.are_deterministic_algorithms_enabled()": (
        lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False),
    ),
    "torch.set_flush_denormal()": (lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
    "numpy.geterr()": (lambda: np.seterr(divide="raise"), lambda: np.seterr(divide="warn")),
    "sys.path": (lambda: sys.path.append("/elsewhere"), lambda: sys.path.remove("/elsewhere")),
    "os.environ['MEDDLED']": (lambda: os.environ.update(MEDDLED="1"), lambda: os.environ.pop("MEDDLED")),
    "os.getcwd()": (lambda: os.chdir("/"), lambda: os.chdir(HERE)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_of_what_trials_share_is_seen(name):
    change, back = CHANGES[name]
    torch.set_num_threads(1)
    before = snapshot_shared_state()
    assert diff_shared_state(before, snapshot_shared_state()) == []
    change()
    try:
        found = diff_shared_state(before, snapshot_shared_state())
    finally:
        back()
    assert [one.partition(" from ")[0] for one in found] == [name]


WRONG = {
    "nothing": ("None", "got None"),
    "an array": ("np.ones(8) / 8", r"got a numpy.ndarray of float64 \[8\]"),
    "a list": ("[0.125] * 8", r"got list \[0.125, 0.125"),
    "truths": ("torch.ones(8, dtype=torch.bool)", r"got a tensor of bool \[8\]"),
    "complex": ("torch.ones(8, dtype=torch.complex64)", r"got a tensor of complex64 \[8\]"),
    "a shape": ("torch.ones(3)", r"got \[3\]"),
    "a number": ("torch.tensor(1.0)", r"got \[\]"),
}
METHODS = {
    "WeightRule": ("weights(self, gram, context)", "weights: expected .*[8]"),
    "CoordinateRule": ("reduce(self, block, context)", "reduce: expected .*[650]"),
    "MatrixRule": ("combine(self, updates, context)", "combine: expected .*[650]"),
    "Mixing": ("matrix(self, gram, context)", "matrix: expected .*[8, 8]"),
    "ClientTransform": ("apply(self, update, context)", "apply: expected .*[650]"),
    "PoisonAttack": ("craft(self, view)", "craft: expected .*[2, 650]"),
}


def test_what_returns_the_wrong_thing_is_named_with_its_file_and_what_it_should_have_returned(suite, tmp_path):
    code, rules, attacks, expected = "", ["mean"], ["none"], {}
    for number, (base, (method, wanted)) in enumerate(METHODS.items()):
        for other, (value, got) in enumerate(WRONG.values()):
            name = f"wrong_{number}_{other}"
            needs = "(Sight.HONEST_UPDATES,)" if base == "PoisonAttack" else "ROWS"
            code += f"\nclass Wrong_{number}_{other}({base}):\n    'Wrong.'\n    name, needs = '{name}', {needs}\n"
            code += "    breakdown = '0'\n" * (base != "PoisonAttack") + f"    def {method}:\n        return {value}\n"
            alone = base not in ("Mixing", "ClientTransform")
            spec = name if alone else f"{name} >> mean"
            (attacks if base == "PoisonAttack" else rules).append(spec)
            pattern = re.escape(wanted).replace(r"\.\*", ".*")
            expected[spec] = (
                f"ContractError: {name} broke its contract: {pattern}; {got}.*It is defined in .*plug_\\d+.py.$"
            )
    for matrix in (f"{{defense: {rules}}}", f"{{attack: {attacks}, defense: [mean]}}"):
        path = suite(code, matrix)
        for row in fg.run(path, store=tmp_path / "runs", jobs=2).rows():
            spec = row["defense"] if row["attack"] == "none" else row["attack"]
            if spec not in ("mean", "none"):
                assert re.search(expected.pop(spec), row["reason"]), (spec, row["reason"])
    assert not expected


OTHERWISE = """
class Poisons(PoisonAttack):
    "Returns nothing to train on."
    name = "poisons"
    needs = (Sight.OWN_DATA,)
    def poison(self, examples, view):
        pass

class Raises(PoisonAttack):
    "Fails."
    name = "raises"
    needs = (Sight.OWN_DATA,)
    def poison(self, examples, view):
        return examples.inputs

class Plans(PoisonAttack):
    "Has no plan."
    name = "plans"
    needs = (Sight.OWN_DATA,)
    def plan(self, plan, view):
        pass

class Forgets(PoisonAttack):
    "Remembers nothing."
    name = "forgets"
    needs = (Sight.OWN_DATA,)
    def remember(self, view, crafted):
        pass

class Notes(PoisonAttack):
    "Notes what no record can hold."
    name = "notes"
    needs = (Sight.OWN_DATA,)
    def notes(self, state):
        return {"vector": torch.ones(3)}

class Infinite(PoisonAttack):
    "Notes what no record can hold."
    name = "infinite"
    needs = (Sight.OWN_DATA,)
    def notes(self, state):
        return {"strength": float("inf")}

class Plants(PoisonAttack):
    "Plants a number."
    name = "plants"
    needs = (Sight.OWN_DATA,)
    def backdoor(self, state):
        return 3

class Reads(PoisonAttack):
    "Reads more than it said."
    name = "reads"
    needs = (Sight.OWN_DATA,)
    def craft(self, view):
        return view.honest.mean(0).expand(view.f, -1)

class Deals(Partition):
    "Deals lists."
    name = "deals"
    def split(self, examples, clients, rng):
        return [[0, 1]] * clients

class Lacks(Data):
    "Loads nothing."
    name = "lacks"
    def load(self):
        pass

class Looks(WeightRule):
    "Looks at what is not there."
    name, needs, breakdown = "looks", ROWS, "0"
    def weights(self, gram, context):
        return gram.lengths
"""


def test_trials_name_the_plugin_that_broke_them(suite, tmp_path):
    path = suite(OTHERWISE, "{attack: [none, plans, forgets, notes, infinite, reads], defense: [mean, looks]}")
    rows = fg.run(path, store=tmp_path / "runs", jobs=2).rows()
    said = {row["attack"]: row["reason"] for row in rows if row["defense"] == "mean"}
    assert "plans broke its contract: plan: expected LocalPlan; got None. It is defined in " in said["plans"]
    assert "forgets broke its contract: remember: expected Mapping; got None." in said["forgets"]
    assert "notes broke its contract: notes: expected int or float; got a tensor of float32 [3]." in said["notes"]
    assert "notes: expected a finite number; got inf" in said["infinite"]
    assert re.search(r"attack 'reads' of .*plug_\d+.py: NotObservable: ", said["reads"])
    (looks,) = {row["reason"] for row in rows if row["defense"] == "looks" and row["attack"] == "none"}
    assert re.search(
        r"^defense 'looks' of .*plug_\d+.py: AttributeError: 'Gram' object has no attribute 'lengths'$", looks
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("matrix.attack=[poisons]", r"poisons broke its contract: poison: expected Examples; got None. It is defined in plug_\d+.py."),
        ("matrix.attack=[raises]", r"attack 'raises' of plug_\d+.py: AttributeError: 'Examples' object has no attribute 'inputs'"),
        ("matrix.attack=[plants]", r"plants broke its contract: backdoor: expected tuple or NoneType; got int 3. It is defined in plug_"),
        ("matrix.defense=[looks]", r"defense 'looks' of plug_\d+.py: AttributeError: 'Gram' object has no attribute 'lengths'"),
        ("task.partition=deals", r"deals broke its contract: split: expected numpy arrays of example numbers; got list \[0, 1\]."),
        ("task.data=lacks", r"lacks broke its contract: load: expected Dataset; got None."),
    ],
)  # fmt: skip
def test_a_mistake_in_a_plugin_is_its_authors(suite, tmp_path, setting, message):
    path = suite(OTHERWISE, "{attack: [none], defense: [mean]}")
    done = fedguard("check", path.name, "--set", setting, cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1 and "fault of FedGuard" not in done.stderr
    (log,) = tmp_path.glob("fedguard-crash-*.log")
    assert log.name in done.stderr and "Traceback" in log.read_text()


def test_a_class_without_its_method_says_which(suite):
    path = suite("class Idle(WeightRule):\n    'Idle.'\n    name, breakdown = 'idle', '0'\n", "{defense: [idle]}")
    with pytest.raises(PluginError, match=r"expected a class with the methods of WeightRule; Idle lacks weights"):
        fg.run(path)
