"""What runs of this machine and of a cluster are compared on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedguard as fg
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.progress import Listener

SUITE = {
    "name": "small",
    "clients": {"total": 10, "malicious": 2},
    "training": {"rounds": 3, "momentum": 0.9},
    "seeds": 2,
    "matrix": {"attack": ["none", "ipm", "model_replacement"], "defense": ["mean", "median", "fltrust"]},
}
PLUGIN = """
import os, time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
import numpy as np
import torch
from beside import FACTOR
from fedguard.contracts import PoisonAttack, Sight

@dataclass(frozen=True, kw_only=True)
class Mine(PoisonAttack):
    '''Sends a constant.'''
    name = "mine"
    needs = (Sight.NOTHING,)
    what: str = "send"
    at: str = ""
    def craft(self, view):
        if self.what == "raise":
            raise ValueError("no such luck")
        if self.what == "die":
            os.kill(os.getpid(), 9)
        if self.what == "sleep":
            time.sleep(0.2)
        if self.what == "hang":
            time.sleep(600)
        if self.what == "stay":  # the first that comes here, until its machine is lost
            try:
                with Path(self.at).open("x") as file:
                    file.write(os.environ["RAY_RAYLET_PID"])
            except FileExistsError:
                pass
            else:
                time.sleep(600)
        return torch.full((view.f, view.dim), FACTOR)
"""


class Ear(Listener):
    """Keeps what is said, and does something after each record."""

    def __init__(self, act=lambda: None) -> None:
        self.notes: list[str] = []
        self.ran: list[tuple[str, int]] = []
        self.rounds = 0
        self.jobs = 0
        self._act = act

    def begin(self, total, stored, refused, jobs):
        self.jobs = jobs

    def note_progress(self, trial, round, rounds, scores):
        self.rounds += 1

    def note_record(self, record):
        self.ran.append((record["cell"], record["seed"]))
        self._act()

    def note(self, text):
        self.notes.append(text)


def records(run: fg.Run) -> dict:
    return {trial: reproducible(record) for trial, record in run.records.items()}


def ran_at(address: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command over ``quick.json``, at a cluster."""
    command = [sys.executable, "-m", "fedguard.cli", "run", "quick.json", "--engine", "ray", "--address", address]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, cwd=folder
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A suite with a plug-in and data beside it, in the working directory."""
    import numpy as np

    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "beside.py").write_text("FACTOR = 0.25\n")
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 200)
    np.savez(tmp_path / "points.npz", x=(draw.normal(size=(200, 4)) + y[:, None]).astype(np.float32), y=y)
    monkeypatch.chdir(tmp_path)

    def write(*attacks: str, **more: str) -> Path:
        text = f"""schema: 1
name: {more.get("name", "plugged")}
plugins: [mine]
task: {{data: {{name: npz, file: points.npz, value_range: [-5, 8], classes: 3}}, model: softmax}}
clients: {{total: 10, malicious: 2}}
training: {{rounds: 4}}
seeds: 1
matrix: {{attack: [none, {", ".join(attacks)}], defense: [{more.get("defense", "mean, median")}]}}
"""
        (tmp_path / "suite.yaml").write_text(text)
        return tmp_path / "suite.yaml"

    return write
