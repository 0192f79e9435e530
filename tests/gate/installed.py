"""FedGuard as a wheel would install it, in a folder of the test's own: code that a test may change."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path

from tests.forked import called
from tests.root import ROOT

FOLDERS = {
    "fedguard": "fedguard",
    "attacks": "fedguard/attacks",
    "defenses": "fedguard/defenses",
    "app": "fedguard/app",
}

#: How pytest is told of the plug-in: by its entry point where FedGuard was installed with it, else by hand.
PLUGIN = (
    []
    if any(one.value == "fedguard.pytest_plugin" for one in entry_points(group="pytest11"))
    else ["-p", "fedguard.pytest_plugin"]
)


def install(into: Path) -> Path:
    """Copy the packages to ``into/fedguard``."""
    for folder, package in FOLDERS.items():
        shutil.copytree(ROOT / folder, into / package, ignore=shutil.ignore_patterns("__pycache__"))
    return into


def call(arguments: list[str], folder: Path, site: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run ``fedguard`` or ``pytest`` in a folder: of this checkout, or ``fedguard`` with the modules that stand in ``site``."""
    return called(*arguments, cwd=folder, columns=200, site=site, **more)


def fedguard(folder: Path, *arguments: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of FedGuard."""
    return call(["fedguard", *arguments], folder, site)


def baseline(folder: Path, name: str, site: Path | None = None) -> None:
    """Run ``suite.yaml`` and save it as ``baseline.json``."""
    for arguments in (["run", "suite.yaml"], ["baseline", "save", name, "--to", "baseline.json"]):
        done = fedguard(folder, *arguments, "-q", "-j", "1", site=site)
        assert done.returncode == 0, done.stdout + done.stderr
