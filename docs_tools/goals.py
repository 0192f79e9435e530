"""Speed goals of FedGuard as data, and their measurements by the benchmarks.

Each goal names the file that a script left in `benchmarks/measured/`, the row in it, and the figure. A row is named with its
sizes, so that figures of small sizes are never taken for the real ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedguard.errors import InputError

Row = Mapping[str, Any]
#: Results of the scripts, by file name.
Measured = Mapping[str, Mapping[str, Any]]

#: File -> the command that writes it, but for ``--json``.
COMMANDS = {
    "rules": "python benchmarks/rules.py",
    "simulation": "python benchmarks/simulation.py",
    "simulation_2": "python benchmarks/simulation.py --threads 2",
    "networks": "python benchmarks/networks.py",
    "peers": "python benchmarks/peers.py --pfl PYTHON --byzfl PYTHON --flower PYTHON",
    "probes": "python benchmarks/probes.py",
    "secagg": "python benchmarks/secagg.py --flower PYTHON",
    "start": "python benchmarks/start.py",
    "growth": "python benchmarks/growth.py",
    "many_clients": "python benchmarks/many_clients.py",
    "events": "python benchmarks/events.py",
    "asynchronous": "python benchmarks/asynchronous.py",
    "inversion": "python benchmarks/inversion.py",
    "dashboard": "python benchmarks/dashboard.py",
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One goal.

    Args:
        what: the work.
        goal: the figure to be reached.
        file: where it was measured: a key of `COMMANDS`.
        row: what the row of that figure holds.
        figure: its key in the row.
        unit: what stands behind the figure; ``%`` for shares.
        at_most: whether less is better.
        why: one sentence on why it is missed, where that is known.
    """

    what: str
    goal: float
    file: str
    row: Row
    figure: str = "ratio"
    unit: str = "x"
    at_most: bool = False
    why: str = ""

    def measured(self, files: Measured) -> float | None:
        """The measured value; None if not measured."""
        figures = files.get(self.file, {}).get("figures", [])
        found: Row = next((row for row in figures if self.row.items() <= row.items()), {})
        return found.get(self.figure)

    def verdict(self, files: Measured) -> str:
        """``met``, ``missed`` or ``not measured``."""
        value = self.measured(files)
        if value is None:
            return "not measured"
        return "met" if (value <= self.goal if self.at_most else value >= self.goal) else "missed"

    def said(self, value: float) -> str:
        """A value with its unit, and with enough digits to distinguish it from the goal."""
        scale = 100 if self.unit == "%" else 1
        texts = [(_digits(scale * value, more), _digits(scale * self.goal, more)) for more in range(4)]
        text = next((one for one, goal in texts if one != goal or value == self.goal), texts[-1][0])
        return f"{text}\N{NO-BREAK SPACE}{self.unit}"


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The files of known names in a folder.

    Raises:
        InputError: one is not as `benchmarks/measure.py` writes them.
    """
    return {name: _file(path) for name in COMMANDS if (path := folder / f"{name}.json").is_file()}


def _file(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
        rows = [value for row in told["figures"] for value in row.values()]
        fault = next((f"got {value}" for value in rows if isinstance(value, float) and not math.isfinite(value)), None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"got {type(error).__name__}: {error}"
    if fault is not None:
        raise InputError(
            f"{path}: expected JSON with 'figures', a list of rows with finite numbers; {fault}. Run `make bench` again."
        )
    return dict(told)


def _digits(value: float, more: int) -> str:
    """Two significant digits, or all before the point, and some more."""
    return f"{value:,.{more}f}" if abs(value) >= 10 else f"{value:.{2 + more}g}"


def _networks() -> list[Goal]:
    goals = {"lenet5": 1.0, "fedavg_cnn": 1.2, "resnet8, BatchNorm": 1.3, "transformer, adapters": 1.1}
    return [
        Goal(
            what=f"{network}, a round",
            goal=goal,
            file="networks",
            row={"network": network, "clients": 5, "examples": 80},
            at_most=True,
        )
        for network, goal in goals.items()
    ]


def _simulation() -> list[Goal]:
    sizes = {
        "softmax": (50, 20, "Two products with the inputs that no scheme saves take about half of the cohort's time."),
        "mlp": (50, 5.5, "The loop is at a third of a large product's speed already, the cohort at two thirds."),
        "lenet5": (
            50,
            2.6,
            "Small convolutions: the cohort reaches a third of a large product's speed.",
        ),
        "fedavg_cnn": (
            10,
            2,
            "Torch's convolutions of this size, the loop's too, are near a large product's speed or above.",
        ),
    }
    return [
        Goal(
            what=f"{model}, {clients} clients with 200 images",
            goal=goal,
            file="simulation_2",
            row={"model": model, "clients": clients, "images": 200},
            why=why,
        )
        for model, (clients, goal, why) in sizes.items()
    ]


def _peers() -> list[Goal]:
    sizes = {"softmax": (50, 200), "mlp": (50, 200), "fedavg_cnn": (10, 200)}
    goals = {
        "pfl-research, 2 processes": (16, 4.7, 1.8),
        "ByzFL": (35, 9, 2.5),
        "Flower, 2 actors": (85, 28, 3.6),
    }
    return [
        Goal(
            what=f"{model}, beside {peer}",
            goal=goal,
            file="peers",
            row={"system": peer, "cores": "all", "model": model, "clients": clients, "images": images},
            figure="slower_cpu",
            why="The peer is not as far behind the plain loop as the goal supposed.",
        )
        for peer, of_models in goals.items()
        for (model, (clients, images)), goal in zip(sizes.items(), of_models, strict=True)
    ]


def _rules() -> list[Goal]:
    goals = {
        "median": 8, "trimmed_mean": 8, "krum": 5, "geometric_median": 4, "nnm >> trimmed_mean": 12, "centered_clipping": 1.5,
    }  # fmt: skip
    why = {
        "geometric_median": "The Gram matrix alone takes most of it, see Krum.",
        "nnm >> trimmed_mean": "A Gram matrix, a product that mixes the rows, and a trimmed mean, one after the other.",
    }
    return [
        Goal(
            what=rule,
            goal=goal,
            file="rules",
            row={"defense": rule, "n": 50, "d": 1_000_000},
            figure="passes",
            unit="passes",
            at_most=True,
            why=why.get(rule, ""),
        )
        for rule, goal in goals.items()
    ]


def _asynchronous() -> list[Goal]:
    return [
        Goal(
            what=f"{architecture.partition('(')[0]}, {model}, {steps} steps",
            goal=0.5,
            file="asynchronous",
            row={"architecture": architecture, "model": model, "steps": steps},
        )
        for architecture in ("parameter_server(consistency='eventual')", "fedasync", "fedbuff(buffer=10)")
        for model, steps in (("softmax", 10), ("mlp", 10), ("mlp", 50))
    ]


def _secure_aggregation() -> list[Goal]:
    sizes = {"n": 50, "d": 1_000_000}
    ratios = {
        "a client's masks, AES-128": 7,
        "a client's masks, AES-256": 5,
        "the server's masks, AES-128": 8,
        "shares of a client's two secrets": 500,
        "server, from masked inputs to sum": 40,
        "bytes that a client sends": 2,
    }
    beside = [Goal(what=step, goal=goal, file="secagg", row={"step": step, **sizes}) for step, goal in ratios.items()]
    return beside + [
        Goal(
            what=f"{step}, speed in that of the plain keystream",
            goal=0.7,
            file="secagg",
            row={"step": step, **sizes},
            figure="share of keystream",
            unit="%",
        )
        for step in list(ratios)[:2]
    ]


#: Heading -> description of its values, and the goals.
GOALS: dict[str, tuple[str, list[Goal]]] = {
    "Training beside a plain loop": (
        "How many times more client updates per second of CPU than the loop of `examples/plain_loop.py` makes, one local epoch "
        "with batches of 20, images of 28 x 28; both with two threads.",
        _simulation(),
    ),
    "Training of other networks": (
        "CPU time of the client updates in units of a loop of torch's own SGD over the same batches of 16; five clients with "
        "80 examples, one thread.",
        _networks(),
    ),
    "Training beside its peers": (
        "How many times more CPU time other frameworks take for the same round, one local epoch with batches of 20; all "
        "with as many threads and processes as there are cores, which were two.",
        _peers(),
    ),
    "Training beside the processor": (
        "The multiplications that the plain loop would do, in those of a product of two large matrices in the same CPU time, "
        "one thread.",
        [
            Goal(
                what=f"{model}, {clients} clients with 200 images",
                goal=goal,
                file="simulation",
                row={"model": model, "clients": clients, "images": 200},
                figure="share of sgemm",
                unit="%",
            )
            for model, clients, goal in (("mlp", 50, 0.45), ("fedavg_cnn", 10, 0.8))
        ],
    ),
    "Rules": (
        "One aggregation in passes over memory, at n = 50, d = 1,000,000, one thread: one pass is `updates.mean(0)`.",
        _rules(),
    ),
    "Probes": (
        "What an attack pays for 20 probes of a known rule, in aggregations by that rule, at n = 50, f = 10, d = 1,000,000.",
        [
            Goal(
                what="20 probes of nnm >> krum",
                goal=1.5,
                file="probes",
                row={"defense": "nnm >> krum", "n": 50, "d": 1_000_000},
                unit="aggregations",
                at_most=True,
            )
        ],
    ),
    "Secure aggregation": (
        "How many times less CPU time, or bytes, than Flower takes for the same step, at n = 50, d = 1,000,000, 5 dropouts.",
        _secure_aggregation(),
    ),
    "Simulated time": (
        "CPU time of one simulated event, one thread, in the course of a training without the training itself.",
        [
            Goal(
                what=f"{way}, {devices:,} devices by day and night",
                goal=20,
                file="events",
                row={"devices": devices, "way": way, "there": "day_and_night"},
                figure="event, us",
                unit="us",
                at_most=True,
            )
            for devices in (1000, 10_000)
            for way in ("asynchronous", "bounded delay", "buffered, a tenth at work", "all together")
        ],
    ),
    "Servers at which nobody waits": (
        "Updates in a second of CPU time beside the synchronous server's, 100 clients, steps of 32 examples, one thread.",
        _asynchronous(),
    ),
    "Start": (
        "Seconds on the wall, with the files of the libraries in the system's cache.",
        [
            Goal(what=what, goal=goal, file="start", row={"start": what}, figure="seconds", unit="s", at_most=True)
            for what, goal in (("fedguard --help", 0.5), ("first cell of a suite", 6.0))
        ],
    ),
}
