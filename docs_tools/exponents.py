"""Cost of a target accuracy as nodes mix more slowly: five systems, each at its best step size, and fitted exponents.

The picture `exponents` of `docs_tools.pictures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import Any

import pandas as pd

from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.cells import PlannedCell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Setup
from fedguard.metrics.stats import estimate
from fedguard.registry import load_registry
from fedguard.simulated.topology import topology

#: The accuracy that the nodes are to have on average, and for how many evaluations in a row.
TARGET, HELD = 0.8, 3
BATCH = 32
#: Step sizes are 0.4 / 2^i: the first one that is tried, and the number of them.
_FIRST, _SIZES = 1, 11
#: Limits on rounds, absolute and relative to the graph before, beyond which a system has not reached the target.
MOST, _TIMES = 20_000, 12

#: Of a phase: how many exchanges of accelerated gossip bring nodes together, times $(1 - |lambda_2|)^{1/2}$.
PHASE = 2.0

SYSTEMS = ("d_psgd", "d2", "dsgt", "detag", "defacto")

#: Both ways to mix slower: name, and number of nodes and weight k of each graph.
SLOWER: dict[str, tuple[tuple[int, float], ...]] = {
    "ring of 10, k = 1, 0.1, 0.05, 0.01": ((10, 1.0), (10, 0.1), (10, 0.05), (10, 0.01)),
    "rings of 5, 10, 20, 40, k = 1": ((5, 1.0), (10, 1.0), (20, 1.0), (40, 1.0)),
}

#: Cases with tens of thousands of rounds for each step size.
TOO_LONG = {("d_psgd", "ring of 10, k = 1, 0.1, 0.05, 0.01")}


@dataclass(frozen=True)
class Graph:
    """A ring for one system.

    Attributes:
        system: the words of its architecture.
        gap: $1 - |lambda_2|$ of its weights.
        trainings, exchanges: of each node in a round.
        lacking: of these exchanges in the first round, in which there are no trackers yet.
    """

    system: dict[str, Any]
    nodes: int
    gap: float
    trainings: int
    exchanges: int
    lacking: int


def graph(name: str, nodes: int, weight: float) -> Graph:
    """The ring of ``nodes`` nodes, each with weight 1 - ``weight`` on its own value; half of ``weight`` under ``d2``."""
    weight = weight / 2 if name == "d2" else weight
    gap = topology("ring", nodes, weight=weight).gap
    phase = math.ceil(PHASE / math.sqrt(gap)) if name in ("detag", "defacto") else 1
    words = {"name": name, "weight": weight, **({"phase": phase} if phase > 1 else {})}
    tracks = name in ("dsgt", "detag")
    return Graph(words, nodes, gap, phase, phase * (2 if tracks else 1), phase if tracks else 0)


def rounds_to(setup: Setup, system: Any, lr: float, every: int, most: int) -> int | None:
    """Number of rounds until the mean node holds the target for `HELD` evaluations in a row; None if more than ``most``."""
    training = setup.cell.training.model_copy(update={"rounds": most + HELD * every, "lr": lr})
    held = 0
    for report in system.run(replace(setup, evaluate_every=every).with_parts(training=training)):
        if report.evaluation is not None:
            held = held + 1 if report.evaluation.accuracy >= TARGET else 0
        if held == HELD:
            return int(report.round) - (HELD - 1) * every
        if not held and report.round > most:
            return None
    return None


def fewest(one: Graph, seed: int, every: int, first: int = _FIRST, most: int = MOST) -> tuple[float, int]:
    """The fewest rounds over all step sizes, and the index of the best one; infinity if none reaches the target.

    It walks from the first one to smaller ones while that helps, or else to larger ones.
    """
    cell, setup = _scene(one, seed)
    tried: dict[int, float] = {}

    def took(number: int) -> float:
        if number not in tried:
            bound = min((most, *(2 * int(rounds) for rounds in tried.values() if rounds < math.inf)))
            tried[number] = rounds_to(setup, cell.architecture, 0.4 / 2**number, every, bound) or math.inf
        return tried[number]

    for way in (1, -1):
        number = first
        while 0 <= number + way < _SIZES and took(number + way) <= took(number):
            number += way
        if number != first and took(number) < math.inf:
            break
    best = min(tried, key=lambda number: tried[number])
    return tried[best], best


def measured(
    systems: Sequence[str] = SYSTEMS,
    slower: dict[str, tuple[tuple[int, float], ...]] = SLOWER,
    seeds: int = 3,
    most: int = MOST,
) -> pd.DataFrame:
    """Each system on each graph and seed: ``1 / gap``, and the number of each count until the target."""
    return pd.DataFrame(
        row
        for way, graphs in slower.items()
        for name in systems
        if (name, way) not in TOO_LONG
        for row in _of(name, way, graphs, seeds, most)
    )


def _of(name: str, way: str, graphs: Sequence[tuple[int, float]], seeds: int, most: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        rounds, best, bound = 20.0, _FIRST, most
        for nodes, weight in graphs:
            one = graph(name, nodes, weight)
            rounds, best = fewest(one, seed, max(1, round(min(rounds, most) / 20)), best, bound)
            bound = round(min(most, _TIMES * rounds))
            counts = {
                "examples of a node": rounds * one.trainings * BATCH,
                "optimizer steps": rounds,
                "exchanges": rounds * one.exchanges - one.lacking,
            }
            for count, number in counts.items():
                yield {
                    "system": name, "slower": way, "seed": seed, "nodes": nodes, "weight": weight, "count": count,
                    "1 / gap": 1 / one.gap, "number": number, "lr": 0.4 / 2**best,
                }  # fmt: skip


def exponents(points: pd.DataFrame) -> pd.DataFrame:
    """Of each system, way and count: the slope of log number over log 1 / gap, its mean over seeds and half its interval."""
    found = []
    for (way, count, name), part in points.groupby(["slower", "count", "system"], sort=False):
        slopes = [_slope(of_seed) for _, of_seed in part.groupby("seed")]
        mean = estimate(slopes)
        row = {"slower": way, "count": count, "system": name, "exponent": mean.mean, "half": mean.half_width}
        found.append(row)
    return pd.DataFrame(found)


def _slope(part: pd.DataFrame) -> float:
    """Slope over the graphs on which the target was reached; NaN with fewer than two."""
    there = part[part["number"] < math.inf]
    if len(there) < 2:
        return math.nan
    return linear_regression(
        [math.log(one) for one in there["1 / gap"]], [math.log(one) for one in there["number"]]
    ).slope


def _scene(one: Graph, seed: int) -> tuple[PlannedCell, Setup]:
    words = {
        "task": {"data": "digits", "model": "softmax", "partition": "label_sorted"},
        "clients": {"total": one.nodes},
        "training": {"rounds": 1, "local_steps": 1, "batch_size": BATCH, "lr": 0.1},
        "architecture": one.system,
    }
    cell = build_cell(CellConfig.model_validate(words), load_registry())
    return cell, set_up(cell, seed, _BENCH.task(cell, seed))


_BENCH = Workbench()
