"""The gate as tests: what pytest collects, what it runs, and how it says what is wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.gate.installed import PLUGIN, baseline, call

SUITE = """
name: tiny
plugins: [own_rules]
clients: {total: 10, malicious: 2}
training: {rounds: 5, batch_size: 32, lr: 0.1}
seeds: 2
gate: {confirm: 3, audit: false}
matrix:
  attack: [none, sign_flip]
  defense: [mean, own_mean]
"""

RULE = """
from dataclasses import dataclass
import torch
from fedguard.contracts import Sight, WeightRule

@dataclass(frozen=True, kw_only=True)
class OwnMean(WeightRule):
    '''A user's rule.'''
    name = "own_mean"
    needs = (Sight.EACH_UPDATE,)
    def weights(self, gram, context):
        return torch.full((gram.n,), 1.0 / gram.n, dtype=torch.float64)
"""
WORSE = RULE.replace("1.0 / gram.n", "0.1 / gram.n")

ASKED = ("--fedguard", "suite.yaml", "--fedguard-baseline", "baseline.json")
IDS = [
    "suite.yaml::comparable with the baseline",
    "suite.yaml::no attack against mean::final_accuracy",
    "suite.yaml::no attack against own_mean::final_accuracy",
    "suite.yaml::sign_flip against mean::final_accuracy",
    "suite.yaml::sign_flip against own_mean::final_accuracy",
    "suite.yaml::whole suite::final_accuracy",
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A project: a suite with a rule of the user's own, its run, its baseline, and an ordinary test."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "own_rules.py").write_text(RULE)
    (folder / "test_other.py").write_text("def test_other():\n    assert True\n")
    baseline(folder, "tiny")
    return folder


@pytest.fixture
def place(kept, tmp_path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(kept, tmp_path / "project"))


def gated(place: Path, *arguments: str, asked: tuple[str, ...] = ASKED) -> subprocess.CompletedProcess[str]:
    return call(["pytest", *PLUGIN, "-p", "no:cacheprovider", *asked, *arguments], place)


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Of each test, as `-rA` tells them."""
    found = re.findall(r"^(PASSED|FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return {name: word for word, name in found}


def test_it_is_light_and_does_nothing_unless_asked(place):
    (place / "test_other.py").write_text(
        "import sys\ndef test_other():\n    assert {'torch', 'fedguard.api', 'pydantic'}.isdisjoint(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "suite.yaml" not in done.stdout


def test_collecting_names_all_that_will_be_judged_and_trains_nothing(place):
    shutil.rmtree(place / "runs")
    done = gated(place, "--collect-only", "-q")
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if "::" in line] == [*IDS, "test_other.py::test_other"]
    assert not (place / "runs").exists()


@pytest.mark.slow
def test_two_workers_of_xdist_run_the_suite_once_and_say_how_it_goes(place):
    shutil.rmtree(place / "runs" / "tiny")
    done = gated(place, "-n", "2", "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(done) == dict.fromkeys([*IDS, "test_other.py::test_other"], "PASSED")
    assert done.stderr.count("12 trials: 12 to run") == 1
    assert done.stderr.count(" trials: ") == 1
    assert "passed: 4 identical" in done.stdout


def test_a_rule_made_worse_fails_with_the_gates_reason_and_no_traceback(place):
    (place / "own_rules.py").write_text(WORSE)
    done = gated(place, "--junitxml", "out.xml", "-rA")
    assert done.returncode == 1, done.stdout + done.stderr
    worse = [name for name, word in outcomes(done).items() if word == "FAILED"]
    assert worse == [IDS[2], IDS[4], IDS[5]]
    assert "6 stored trials were made by" in done.stderr  # those of the changed plug-in, silent ones too, and no others
    assert "Traceback" not in done.stdout + done.stderr
    assert "pytest_plugin.py" not in done.stdout
    cases = {
        (case.get("classname"), case.get("name")): case
        for case in ElementTree.parse(place / "out.xml").iter("testcase")
    }
    failure = cases["suite.yaml.sign_flip against own_mean", "final_accuracy"].find("failure")
    assert re.search(r"worse by [\d.]+ points on 2 seeds.*on 3 fresh seeds: confirmed", failure.get("message"))


@pytest.mark.slow
def test_what_looks_worse_without_proof_is_skipped_with_its_reason_and_fails_under_strict(place):
    (place / "own_rules.py").write_text(WORSE)
    (place / "suite.yaml").write_text(SUITE.replace("confirm: 3", "confirm: 3, alpha: 1.0e-12"))
    chosen = ("-k", "sign_flip and own_mean", "-rs")
    done = gated(place, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SKIPPED.*sign_flip against own_mean, final_accuracy: inconclusive: worse by", done.stdout)
    strict = gated(place, *chosen, "--fedguard-fail-on", "inconclusive")
    assert strict.returncode == 1
    assert "1 failed" in strict.stdout
    assert "cannot judge: worse by" in strict.stdout


def test_what_cannot_be_judged_fails(place):
    (place / "suite.yaml").write_text(SUITE.replace("attack: [none, sign_flip]", "attack: [none]"))
    done = gated(place, "-rA")
    assert done.returncode == 1
    told = outcomes(done)
    assert [told[name] for name in IDS[:5]] == ["PASSED", "PASSED", "PASSED", "FAILED", "FAILED"]
    assert "cannot judge: the run does not have it." in done.stdout


def test_mistakes_are_one_line_before_anything_runs(place):
    (place / "wrong.yaml").write_text(SUITE.replace("sign_flip", "sign_flipp"))
    for asked, said in (
        (("--fedguard", "none.yaml", *ASKED[2:]), "none.yaml: cannot be read"),
        (("--fedguard", "wrong.yaml", *ASKED[2:], "-n", "2"), "unknown attack 'sign_flipp'. Did you mean 'sign_flip'"),
        (ASKED[:2], "fedguard baseline save tiny --to"),
        ((*ASKED[:2], "--fedguard-baseline", "suite.yaml"), "suite.yaml: expected a baseline"),
    ):
        done = gated(place, asked=asked)
        assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
        (line,) = [line for line in done.stderr.splitlines() if line]
        assert line.startswith("ERROR: fedguard: "), line
        assert said in line


@pytest.mark.slow
def test_the_ini_file_says_the_same_for_calls_that_name_no_path(place):
    (place / "pytest.ini").write_text(
        "[pytest]\nfedguard_suite = suite.yaml\nfedguard_baseline = baseline.json\nfedguard_store = elsewhere\n"
        "fedguard_fail_on = inconclusive\n"
    )
    (place / "below").mkdir()
    listed = call(["pytest", *PLUGIN, "--collect-only", "-q"], place / "below")
    assert [line for line in listed.stdout.splitlines() if "::" in line] == IDS
    assert "1 passed" in gated(place, "test_other.py", asked=()).stdout
    one = gated(place, IDS[1], asked=())
    assert "1 passed" in one.stdout
    assert (place / "elsewhere" / "tiny" / "manifest.json").is_file()


def test_the_old_name_of_an_option_is_accepted_and_names_the_new_one(place):
    done = gated(place, "--fedguard-strict", "--collect-only", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--fedguard-strict is now --fedguard-fail-on inconclusive" in done.stderr
    (place / "pytest.ini").write_text("[pytest]\nfedguard_fail_on = passed\n")
    assert "fedguard_fail_on: expected inconclusive; got 'passed'." in gated(place, "--collect-only").stderr
