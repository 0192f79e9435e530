"""FedGuard beside its peers, in alternation in one run: client updates per second, and robust rules in passes over memory.

Each peer trains the same round in an interpreter of its own, by a program in `peers/`; those not given are left out.
CPU time is that of all processes of a peer, read from /proc.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import keep

from fedguard.registry import load_registry

sys.path.append(str(Path(__file__).parent / "peers"))
from program import HERE, Program
from rule_table import compare_rules, show_rules

CORES = len(os.sched_getaffinity(0))
PACKAGES = {"byzfl": "byzfl", "flower": "flwr", "pfl": "pfl"}
#: Model, clients, images of each. For another number of clients all programs start anew.
ROUNDS = [("softmax", 50, 200), ("mlp", 50, 200), ("fedavg_cnn", 10, 200)]
SMOKE = [("softmax", 2, 40), ("fedavg_cnn", 2, 20)]
#: Learning rate, and batch size.
LR, BATCH = 0.05, 20


@dataclass
class System:
    """A program that trains, on a number of cores.

    Attributes:
        cores: "all": with as many threads or processes as it takes by itself; "one": with one thread. It stands beside
            FedGuard on as many.
        rounds: in one sample.
        samples: wall and CPU seconds of a round, each time that it was measured.
    """

    program: Program
    cores: str
    rounds: int = 1
    samples: list[tuple[float, float]] = field(default_factory=list)

    def train(self) -> tuple[float, float]:
        """Wall and CPU seconds of a round."""
        cpu, begun = self.program.cpu(), time.perf_counter()
        self.program.ask({"rounds": self.rounds, "threads": 1 if self.cores == "one" else None})
        wall = time.perf_counter() - begun
        return wall / self.rounds, (self.program.cpu() - cpu) / self.rounds

    def seconds(self) -> tuple[float, float]:
        """Wall and CPU seconds of a round, medians; CPU time comes in steps of 10 ms."""
        wall, cpu = zip(*self.samples, strict=True)
        return median(wall), max(median(cpu), 0.01 / self.rounds)


def start(pythons: dict[str, str], clients: int, folder: Path, stack: ExitStack) -> list[System]:
    """Ourselves and the peers that are there."""

    def program(name: str, python: str, *command: str) -> Program:
        made = Program(name, [python, *command], folder)
        stack.callback(made.close)
        return made

    threaded = [
        program("FedGuard", sys.executable, str(HERE / "with_fedguard.py")),
        program("plain loop", sys.executable, str(HERE / "with_plain_loop.py")),
    ]
    spread = []
    if python := pythons.get("byzfl"):
        threaded += [program("ByzFL", python, str(HERE / "with_byzfl.py"))]
    if python := pythons.get("pfl"):
        script, many = str(HERE / "with_pfl.py"), f"--nproc-per-node={CORES}"
        threaded += [program("pfl-research", python, script)]
        launched = ("-m", "torch.distributed.run", "--standalone", many, script)
        spread += [program(f"pfl-research, {CORES} processes", python, *launched)]
    if python := pythons.get("flower"):
        spread += [program(f"Flower, {CORES} actors", python, str(HERE / "with_flower.py"), str(clients))]
    return [System(one, "all") for one in threaded + spread] + [System(one, "one") for one in threaded]


def write_tasks(model: str, clients: int, size: int, folder: Path) -> tuple[str, str]:
    """Files of a round with random images, and of one whose result does not depend on the order of the batches.

    In the second each client has copies of one image, so that all its batches are alike.
    """
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(clients, size, 1, 28, 28, generator=draw), torch.randint(10, (clients, size), generator=draw)
    torch.manual_seed(0)
    facts = {"module": load_registry().build("model", model).build((1, 28, 28), 10), "lr": LR, "batch": BATCH}
    torch.save({**facts, "x": x, "y": y}, folder / f"{model}")
    torch.save({**facts, "x": x[:, :1].expand_as(x).clone(), "y": y[:, :1].expand_as(y).clone()}, folder / "alike")
    return str(folder / f"{model}"), str(folder / "alike")


def check(systems: list[System], task: str, folder: Path) -> dict[str, float]:
    """How far each one's model is from the plain loop's after a round, in lengths of what the round moved."""
    first = torch.cat(
        [value.reshape(-1) for value in torch.load(task, weights_only=False)["module"].state_dict().values()]
    )
    models = {}
    for program in (system.program for system in systems if system.cores == "all"):
        for question in ({"task": task}, {"rounds": 1, "threads": None}, {"model": str(folder / "model")}):
            program.ask(question)
        models[program.name] = torch.load(folder / "model")
    known = models["plain loop"]
    off = {name: float((model - known).norm() / (known - first).norm()) for name, model in models.items()}
    for name, distance in off.items():
        if not distance < 1e-4:
            sys.exit(f"{name} does not train the same round: its model is off the plain loop's by {distance:.2g}.")
    return off


def compare(systems: list[System], task: str, repeats: int, least: float) -> None:
    """Take samples in alternation, each of at least about ``least`` seconds."""
    for system in systems:
        system.samples.clear()
        system.rounds = 1
        if system.cores == "all":
            system.program.ask({"task": task})
        system.train()
        system.rounds = min(200, max(1, math.ceil(least / system.train()[0])))
    for _ in range(repeats):
        for system in systems:
            system.samples.append(system.train())


def table(systems: list[System], clients: int, off: dict[str, float]) -> list[dict[str, Any]]:
    """A row for each, beside FedGuard on as many cores."""
    own = {system.cores: system.seconds() for system in systems if system.program.name == "FedGuard"}
    rows = []
    for system in systems:
        wall, cpu = system.seconds()
        rates = {"updates_per_second": clients / wall, "updates_per_cpu_second": clients / cpu}
        slower = {"slower": wall / own[system.cores][0], "slower_cpu": cpu / own[system.cores][1]}
        name = system.program.name
        rows.append({"system": name, "cores": system.cores, **rates, **slower, "difference": off[name]})
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':26} cores  updates/s   slower   per CPU s   slower   off the plain loop by")
    for row in rows:
        print(
            f"{row['system']:26} {row['cores']:5} {row['updates_per_second']:10.0f} {row['slower']:8.2f} "
            f"{row['updates_per_cpu_second']:11.0f} {row['slower_cpu']:8.2f}   {row['difference']:.0e}",
            flush=True,
        )


def version(name: str, python: str | None) -> str | None:
    """That of the peer, if it is there; says so."""
    found = None
    if python is not None:
        code = f"from importlib.metadata import version; print(version({PACKAGES[name]!r}))"
        try:
            found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            found = None
    print(f"{PACKAGES[name]}: {found or 'not installed'}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    for name, package in PACKAGES.items():
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"an interpreter that has {package}")
    options = parser.parse_args()
    given = {name: getattr(options, name) for name in PACKAGES}
    versions = {name: found for name in PACKAGES if (found := version(name, given[name]))}
    pythons = {name: given[name] for name in versions}
    figures: list[dict[str, Any]] = []
    for clients, group in groupby(SMOKE if options.smoke else ROUNDS, key=lambda given: given[1]):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            systems = start(pythons, clients, folder, stack)
            for model, _, size in group:
                task, alike = write_tasks(model, clients, size, folder)
                off = check(systems, alike, folder)
                compare(systems, task, *((1, 0.0) if options.smoke else (5, 0.4)))
                rows = table(systems, clients, off)
                show(f"{model}, {clients} clients x {size} images", rows)
                figures += [{"model": model, "clients": clients, "images": size, **row} for row in rows]
    rows = compare_rules(pythons.get("byzfl"), *((12, 2000, 1) if options.smoke else (50, 1_000_000, 5)))
    show_rules(rows)
    keep(options.json, [{**row, "versions": versions} for row in figures + rows])


if __name__ == "__main__":
    main()
