"""One process per node, which sends vectors to the others over sockets, by torch.distributed (gloo)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.gossip.ako import Ako
from fedguard.architectures.gossip.dlion import DLion
from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.systems.all_reduce import AllReduce
from fedguard.bench.conformance.engine import TrainingOutcome, simulate_models
from fedguard.config import PlannedCell
from fedguard.contracts import Architecture, Setup
from fedguard.errors import ConfigError, brief

#: Seconds that all processes together may take to start and to train.
PATIENCE = 300.0
#: Where a process writes what it came to, by its number; ``%`` is the number.
FOUND = "node-%d.npz"


class GlooEngine:
    """Engine for gossip, and for sums over rings and trees."""

    name = "gloo"
    runs = "all_reduce with a sum and without masks, and gossip"

    def why_not(self, architecture: Architecture) -> str | None:
        if isinstance(architecture, AllReduce):
            if architecture.masks:
                return "masks of all_reduce are agreed on in one process. Leave out masks."
            if architecture.topology == "all_to_all":
                return "all_to_all has no sum on the way. Take topology: ring, hierarchical or reduce_broadcast."
            return None
        if isinstance(architecture, Gossip) and architecture.masks:
            return f"masks of {architecture.name} are agreed on in one process. Leave out masks."
        if isinstance(architecture, DLion) or (isinstance(architecture, Ako) and not architecture.wait):
            return f"{architecture} sends each neighbor what its link has room for, which processes here do not. Take d_psgd."
        return None if isinstance(architecture, Gossip) else f"gloo runs {self.runs}. Take another engine."

    def run(self, cells: Sequence[PlannedCell], seed: int) -> list[TrainingOutcome]:
        nodes = cells[0].config.clients.total
        with tempfile.TemporaryDirectory(prefix="fedguard-conform-") as name:
            folder = Path(name)
            for rank in range(nodes):
                of_all = [cell.canonical for cell in cells]
                job = {"cells": of_all, "seed": seed, "rank": rank, "nodes": nodes, "folder": name}
                (folder / f"job-{rank}.json").write_text(json.dumps(job))
            _all_run(folder, nodes)
            found = [np.load(folder / (FOUND % rank)) for rank in range(nodes)]
            models = torch.stack([torch.from_numpy(one["models"]) for one in found], dim=1)
            seconds = np.max([one["seconds"] for one in found], axis=0)
            return [TrainingOutcome(each, float(took)) for each, took in zip(models, seconds, strict=True)]

    def simulate_cell(self, cell: PlannedCell, setup: Setup, order: tuple[tuple[int, int], ...] | None) -> Tensor:
        return simulate_models(cell.architecture, setup)


def _all_run(folder: Path, nodes: int) -> None:
    """Run all processes to their end.

    Raises:
        ConfigError: one of them ended early, or they take too long.
    """
    command = [sys.executable, "-P", "-m", "fedguard.bench.conformance.process"]
    logs = [folder / f"log-{rank}.txt" for rank in range(nodes)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            with log.open("wb") as errors:
                processes.append(subprocess.Popen([*command, str(folder / f"job-{rank}.json")], stderr=errors))
        deadline = time.monotonic() + PATIENCE
        while any(one.poll() is None for one in processes):
            failed = [rank for rank, one in enumerate(processes) if one.poll()]
            if failed:
                time.sleep(0.5)  # who was beside it says something, too, but what it says itself comes first
                said = logs[failed[0]].read_text(errors="replace").strip().splitlines()[-1:]
                raise ConfigError(
                    f"--engine gloo: the process of node {failed[0]} ended: {brief(said[0] if said else '')}."
                )
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"--engine gloo: the processes took more than {PATIENCE:g} s. Lower --rounds or --nodes."
                )
            time.sleep(0.05)
        failed = [rank for rank, one in enumerate(processes) if one.returncode]
        if failed:
            said = logs[failed[0]].read_text(errors="replace").strip().splitlines()[-1:]
            raise ConfigError(
                f"--engine gloo: the process of node {failed[0]} ended: {brief(said[0] if said else '')}."
            )
    finally:
        for one in processes:
            one.kill()
            one.wait()
