"""Ways to make a gate say pass that an outside reader found: each must end in a verdict that is no pass, or in a message."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from tables import judged

from fedguard.bench.gate.stages import detectable
from fedguard.config import Document, read_suite
from fedguard.errors import ConfigError, StoreError
from tests.root import ROOT

USUAL = [0.90, 0.88, 0.91, 0.89, 0.90, 0.87, 0.92, 0.90, 0.88, 0.91, 0.89]


def one(verdict):
    (found,) = verdict.judgments
    return found


@pytest.mark.slow
def test_code_is_told_apart_wherever_it_is_installed(tmp_path):
    """Also below folders that are named like parts of it."""
    site = tmp_path / "app" / "commands" / "fedguard"
    for folder, inside in (("fedguard", ""), ("attacks", "attacks"), ("defenses", "defenses"), ("app", "app")):
        subprocess.run(
            ["cp", "-r", str(ROOT / folder), str(site / inside)] if inside else ["mkdir", "-p", str(site)], check=True
        )
        if not inside:
            subprocess.run(["cp", "-rT", str(ROOT / folder), str(site)], check=True)
    script = (
        "import fedguard, fedguard.bench.running.code as c; assert 'commands' in fedguard.__file__; print(c.own_code())"
    )
    environment = {"PYTHONPATH": str(site.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}

    def digest():
        command = [sys.executable, "-P", "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    before = digest()
    rule = site / "defenses" / "aggregators" / "trimmed_mean.py"
    rule.write_text(rule.read_text() + "\n# changed\n")
    changed = digest()
    reader = site / "app" / "main.py"
    reader.write_text(reader.read_text() + "\n# changed\n")
    assert before != changed == digest()


@pytest.mark.parametrize("said", [{"margin": 3}, {"floor": 30}, {"ceiling": 5}])
def test_shares_in_percent_are_refused(said):
    with pytest.raises(ConfigError, match="expected a share, such as 0.03 for 3 points"):
        read_suite(Document({"gate": {"metrics": {"final_accuracy": said}}}))
    read_suite(Document({"gate": {"metrics": {"psnr_gain": {"margin": 3}}}}))


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        ({}, {"metrics": {"final_accuracy": {"margin": 0.9}}}, "the margin of final_accuracy was 0.02, is 0.9"),
        (
            {"metrics": {"final_accuracy": {"floor": 0.5}}},
            {"metrics": {"final_accuracy": {"floor": 0.4}}},
            "was 0.5, is 0.4",
        ),
        ({"metrics": {"final_accuracy": {"floor": 0.5}}}, {"metrics": {"final_accuracy": {}}}, "was 0.5, is none"),
        ({}, {"alpha": 1e-9}, "alpha was 0.05, is 1e-09"),
        ({"audit": True}, {"audit": False}, "epsilons are not audited any more"),
    ],
)
def test_a_gate_that_asks_for_less_needs_a_reason(before, now, line):
    verdict = judged({"x": USUAL}, {"x": USUAL}, gate=now, gate_before=before)
    assert verdict.exit_code == 4
    assert line in verdict.incompatible[0] and "fedguard baseline update --reason" in verdict.incompatible[0]
    assert one(verdict).verdict == "identical"


def test_a_gate_that_asks_for_more_does_not():
    more = {"metrics": {"final_accuracy": {"margin": 0.01, "floor": 0.1}}, "alpha": 0.1}
    assert judged({"x": USUAL}, {"x": USUAL}, gate=more).exit_code == 0


def test_an_epsilon_that_fell_is_looked_at():
    verdict = judged({"x": [3.0] * 11}, {"x": [2.0] * 11}, "epsilon")
    assert one(verdict).verdict == "missing" and verdict.exit_code == 4
    assert "the accounting has changed" in one(verdict).why


@pytest.mark.parametrize("margin", [0.25, 0.5, 1.0, 3.0, 0.02])
def test_a_spread_of_rounding_ends(margin):
    started = time.monotonic()
    assert detectable(3.2e-17, margin, 0.05, 3, 8) == margin
    assert time.monotonic() - started < 5


def test_a_manifest_without_positions_is_one_line(tmp_path):
    from fedguard.bench.records.store import RunFolder

    whole = {"schema": 1, "name": "x", "fedguard": "1", "results_version": 1, "created": 0, "started": 0}
    (tmp_path / "manifest.json").write_text(json.dumps({**whole, "seeds": [0], "swept": [], "controls": []}))
    with pytest.raises(
        StoreError, match="manifest.json: cannot be read: damaged at positions: Field required. Run the suite"
    ):
        RunFolder(tmp_path).manifest()
