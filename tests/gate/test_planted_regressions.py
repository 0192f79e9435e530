"""Faults planted in code, rules, settings and stores, from end to end: what a gate must catch, and what it must let pass."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gate.installed import baseline, fedguard, install
from tests.gate.test_pytest_plugin import RULE, WORSE
from tests.gate.test_pytest_plugin import SUITE as WITH_RULE

#: One cell with the noise of a trusted server.
PRIVATE = """
name: private
clients: {total: 10}
training: {rounds: 4, batch_size: 32, lr: 0.1}
seeds: 2
gate: {confirm: 3, metrics: {epsilon: {}, final_accuracy: {}}}
protocol: {privacy: {name: client, clip: 1.0, noise_multiplier: 1.0, delta: 1.0e-3}}
matrix: {attack: [none], defense: [mean]}
"""


def gate(folder: Path, name: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    return fedguard(folder, "gate", name, "--baseline", "baseline.json", "-j", "1", site=site)


def run(folder: Path, *more: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    return fedguard(folder, "run", "suite.yaml", "-q", "-j", "1", *more, site=site)


def plain(done: subprocess.CompletedProcess[str]) -> str:
    """What it said, in one line."""
    return " ".join(re.sub(r"[│┃|]", " ", done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def ruled(tmp_path_factory) -> Path:
    """A project with a rule of its own: its run and its baseline."""
    folder = tmp_path_factory.mktemp("ruled")
    (folder / "suite.yaml").write_text(WITH_RULE)
    (folder / "own_rules.py").write_text(RULE)
    baseline(folder, "tiny")
    return folder


@pytest.fixture
def project(ruled, tmp_path) -> Path:
    """A copy that a test may change. It forgets where it was, as a fresh checkout does."""
    folder = Path(shutil.copytree(ruled, tmp_path / "project"))
    assert run(folder).returncode == 0
    return folder


def test_a_rule_made_worse_is_a_regression_that_names_its_cells(project):
    assert gate(project, "tiny").returncode == 0
    (project / "own_rules.py").write_text(WORSE)
    stale = gate(project, "tiny")  # nobody has run the changed rule yet
    assert stale.returncode == 4, plain(stale)
    assert run(project).returncode == 0
    done = gate(project, "tiny")
    assert done.returncode == 3, plain(done)
    assert "2 regressed, 2 identical" in plain(done)
    for attack in ("no attack", "sign_flip"):
        assert f"{attack} against own_mean" in plain(done)


def test_a_cell_whose_record_is_gone_cannot_be_judged(project):
    record = sorted((project / "runs" / "tiny" / "cells").rglob("seed-001.json"))[0]
    record.unlink()
    done = gate(project, "tiny")
    assert done.returncode == 4, plain(done)
    assert "1 missing" in plain(done)


@pytest.mark.slow
def test_a_cell_that_fails_cannot_be_judged(project):
    (project / "own_rules.py").write_text(
        RULE.replace("return torch", "raise ValueError('planted')\n        return torch")
    )
    assert run(project).returncode == 4
    done = gate(project, "tiny")
    assert done.returncode == 4, plain(done)
    assert "2 missing" in plain(done)
    assert "planted" in plain(done)


@pytest.mark.slow
def test_an_attack_that_is_gone_from_the_suite_cannot_be_judged(project):
    (project / "suite.yaml").write_text(WITH_RULE.replace("[none, sign_flip]", "[none]"))
    assert run(project).returncode == 0
    done = gate(project, "tiny")
    assert done.returncode == 4, plain(done)
    assert "2 missing" in plain(done)
    assert "sign_flip against own_mean" in plain(done)


@pytest.fixture(scope="module")
def private(tmp_path_factory) -> Path:
    """FedGuard as it is installed, in ``site``, and a run of a suite with noise, with its baseline.

    Commands are forked from this process. Opacus, with which they reckon epsilon, takes them longer to load than all else: here once.
    """
    importlib.import_module("opacus")
    folder = tmp_path_factory.mktemp("private")
    install(folder / "site")
    (folder / "suite.yaml").write_text(PRIVATE)
    baseline(folder, "private", site=folder / "site")
    return folder


@pytest.fixture
def noisy(private, tmp_path) -> Path:
    return Path(shutil.copytree(private, tmp_path / "noisy"))


@pytest.mark.slow
def test_noise_halved_in_the_code_is_a_regression_and_a_store_of_the_old_code_cannot_be_judged(noisy):
    mechanism = noisy / "site" / "fedguard" / "privacy" / "central.py"
    before = mechanism.read_text()
    after = before.replace("noise = self.sum_noise * torch.randn", "noise = 0.5 * self.sum_noise * torch.randn")
    assert before != after
    mechanism.write_text(after)
    stale = gate(noisy, "private", site=noisy / "site")
    assert stale.returncode == 4, plain(stale)
    assert run(noisy, "--fresh", site=noisy / "site").returncode == 0
    done = gate(noisy, "private", site=noisy / "site")
    assert done.returncode == 3, plain(done)
    assert "1 epsilons violated" in plain(done) or "1 epsilon violated" in plain(done)


@pytest.mark.slow
def test_noise_halved_in_the_settings_never_passes(noisy):
    halved = PRIVATE.replace("noise_multiplier: 1.0", "noise_multiplier: 0.5")
    (noisy / "suite.yaml").write_text(halved)
    assert run(noisy, site=noisy / "site").returncode == 0
    done = gate(noisy, "private", site=noisy / "site")
    assert done.returncode == 4, plain(done)
    assert "protocol.privacy.noise_multiplier was 1.0, is 0.5" in plain(done)
    (noisy / "suite.yaml").write_text(halved.replace("epsilon: {}", "epsilon: {ceiling: 12}"))
    assert run(noisy, site=noisy / "site").returncode == 0
    done = gate(noisy, "private", site=noisy / "site")
    assert done.returncode == 3, plain(done)
    assert "above the ceiling of 12" in plain(done)


@pytest.mark.slow
def test_a_change_of_words_passes(noisy):
    site = noisy / "site"
    (site / "fedguard" / "README.md").write_text("Other words.\n")
    (noisy / "README.md").write_text("Other words.\n")
    done = gate(noisy, "private", site=site)
    assert done.returncode == 0, plain(done)
    # A comment is code until it has been run: then every figure is what it was, to the last bit.
    rng = site / "fedguard" / "rng.py"
    rng.write_text(rng.read_text() + "\n# Other words.\n")
    assert gate(noisy, "private", site=site).returncode == 4
    assert run(noisy, "--fresh", site=site).returncode == 0
    done = gate(noisy, "private", site=site)
    assert done.returncode == 0, plain(done)
    assert "Passed: " in plain(done) and "2 identical" in plain(done)
