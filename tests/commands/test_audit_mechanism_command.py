"""`fedguard audit --mechanism`: addresses, exit codes, JSON, SARIF, and one line for each mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import fedguard as fg
from fedguard.bench.audits.mechanisms import as_mechanism, as_released, find_mechanism, parse_shapes
from fedguard.bench.audits.sarif import RULES
from fedguard.errors import ConfigError
from fedguard.privacy.blackbox.mechanism import call
from tests.forked import fedguard

CODE = """
import os
import time

import numpy as np

CLIPPED = 1.0
drawn = np.random.default_rng()
at_import = np.random.default_rng(5)


def noisy(update):
    print("chatter")
    length = np.sqrt(sum((one.astype(float) ** 2).sum() for one in update))
    return [one * min(1, CLIPPED / max(length, 1e-12)) + drawn.normal(0, 2.163, one.shape) for one in update]


def half(update):
    return [one / 2 for one in noisy([2 * one for one in update])]


def seeded_at_import(update):
    return [one + at_import.normal(0, 1, one.shape) for one in update]


class Made:
    def __call__(self, update):
        return noisy(update)


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, update):
        self.calls += 1
        assert self.calls == 1 or len(update) != 4 or self.calls < 99
        return noisy(update)


class Needs:
    def __init__(self, clip):
        self.clip = clip


def bare(update):
    return update


def raises(update):
    raise RuntimeError("no GPU here")


def text(update):
    return ["three"]


def hangs(update):
    time.sleep(600)


def forks(update):
    if os.fork() == 0:
        return update
    os.wait()
    return noisy(update)


counting = Counting()
mods = [noisy, bare]
number = 3
"""
CLAIM = "epsilon=4, delta=1e-5, per=release, relation=replace, law=gaussian"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return path


def audit(*arguments: str):
    return fedguard("audit", *arguments, cwd=Path.cwd(), columns=300)


@pytest.mark.parametrize(
    ("name", "claim", "code", "said"),
    [
        ("noisy", CLAIM, 0, "consistent"),
        ("Made", CLAIM, 0, "consistent"),
        ("counting", CLAIM, 0, "consistent"),
        ("mods[0]", CLAIM, 0, "consistent"),
        ("mods[1]", CLAIM, 3, "violated"),
        ("bare", None, 4, "no claim can be made"),
        ("noisy", None, 4, "no guarantee claimed"),
        ("seeded_at_import", CLAIM, 3, "new processes make the same noise"),
    ],
)
def test_the_exit_code_follows_the_verdict(mine: Path, name: str, claim: str | None, code: int, said: str) -> None:
    done = audit(
        "--mechanism", f"mine.py:{name}", *(["--claim", claim] if claim else []), "--samples", "80", "--budget", "3"
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout and "chatter" not in done.stdout + done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mechanism", "mine.py:nothing"], "mine.py has no nothing; it has"),
        (["--mechanism", "theirs.py:noisy"], "theirs.py: no such file"),
        (["--mechanism", "mine.py"], "expected FILE.py:NAME"),
        (["--mechanism", "mine.py:mods[7]"], "has no item [7]"),
        (["--mechanism", "mine.py:number"], "expected something that can be called"),
        (["--mechanism", "mine.py:Needs"], "Needs is a class that needs clip"),
        (["--mechanism", "mine.py:raises"], "no GPU here"),
        (["--mechanism", "mine.py:text"], "expected arrays of numbers"),
        (["--mechanism", "mine.py:hangs", "--budget", "1"], "one call took longer than the budget of 1 seconds"),
        (["--mechanism", "mine.py:noisy", "--claim", "epsilon=8"], "per=release or per=ROUNDS"),
        (["--mechanism", "mine.py:noisy", "--shapes", "3xx"], "--shapes: expected lengths"),
        (["--mechanism", "mine.py:noisy", "--shapes", "99999x99999"], "at most 10,000,000"),
        (["--mechanism", "mine.py:noisy", "--samples", "few"], "--samples: expected auto"),
        (["--mechanism", "mine.py:noisy", "--samples", "7"], "samples: expected"),
        (["--mechanism", "mine.py:noisy", "--clip", "0"], "clip: expected"),
        (["--mechanism", "mine.py:noisy", "--canaries", "50"], "--canaries says nothing of --mechanism"),
        (["--mechanism", "mine.py:noisy", "--set", "a=1"], "--set says nothing of --mechanism"),
        (["suite.yaml", "--claim", "epsilon=8, per=release"], "--claim says nothing of a suite"),
        (["suite.yaml", "--mechanism", "mine.py:noisy"], "got both or neither"),
        ([], "got both or neither"),
    ],
)
def test_a_mistake_is_one_line(mine: Path, arguments: list[str], said: str) -> None:
    done = audit(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_json_and_sarif_say_the_same(mine: Path) -> None:
    done = audit("--mechanism", "mine.py:bare", "--claim", CLAIM, "--json", "--sarif", "found.sarif", "--budget", "5")
    found = json.loads(done.stdout)
    assert found["verdict"] == "violated" and found["exit_code"] == 3 and found["claim"]["epsilon"] == 4
    sarif = json.loads((mine.parent / "found.sarif").read_text())
    (run,) = sarif["runs"]
    assert sarif["version"] == "2.1.0" and {one["id"] for one in run["tool"]["driver"]["rules"]} == set(RULES)
    first = run["results"][0]
    place = first["locations"][0]["physicalLocation"]
    assert first["ruleId"] == "audit/no-noise" and first["level"] == "error" and first["message"]["text"]
    line = CODE.splitlines().index("def bare(update):") + 1
    assert place == {"artifactLocation": {"uri": "mine.py"}, "region": {"startLine": line}}
    prints = [one["partialFingerprints"]["fedguard/v1"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_python_audits_as_the_command_does(mine: Path) -> None:
    found = fg.audit(find_mechanism("mine.py:bare"), CLAIM, budget=5)
    assert found.verdict == "violated" and found.defined_in is not None and found.defined_in[0].endswith("mine.py")
    with pytest.raises(ConfigError, match="can be called"):
        fg.audit(3, CLAIM)
    with pytest.raises(ConfigError, match="canaries says nothing of a mechanism"):
        fg.audit(list, CLAIM, canaries=50)
    with pytest.raises(ConfigError, match="claim says nothing of a suite"):
        fg.audit("suite.yaml", CLAIM)


def test_a_child_that_a_mechanism_forks_ends_with_its_call(mine: Path) -> None:
    mechanism = as_mechanism(find_mechanism("mine.py:forks"))
    parent = os.getpid()
    found = call(mechanism.fresh(), mechanism.arrays(np.ones(mechanism.size)))
    assert os.getpid() == parent and found.vector is not None and not found.label


def test_outputs_may_be_arrays_mappings_or_pairs() -> None:
    assert [one.tolist() for one in as_released([1.5]).arrays] == [1.5]
    assert [one.tolist() for one in as_released({"a": [1, 2]}).arrays] == [[1, 2]]
    assert as_released(([[1.0]], {"loss": 2})).beside == {"loss": 2}
    assert parse_shapes("784x32, 32") == ((784, 32), (32,))
