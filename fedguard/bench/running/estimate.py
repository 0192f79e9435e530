"""Estimates the duration of a suite from a few rounds, run on as many examples as a budget of CPU time allows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fedguard.bench.running.limit import TrialTimeout, at_most
from fedguard.bench.running.procedures import procedure
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Plan, PlannedCell
from fedguard.contracts import Examples
from fedguard.tasks.classification import Classification
from fedguard.tasks.playing import EnvironmentTask

#: Seconds until the first trial of a suite starts: workers load their libraries.
START = 5.0

#: CPU seconds that all measuring together may take.
BUDGET = 5.0

#: Cells that are measured at most, evenly spaced in the plan.
SAMPLES = 6

#: Shares of the examples, tried in this order as long as the budget lasts; the first one with two for each client, on average.
SHARES = (1 / 1024, 1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0)

#: Stages with a one-time cost per trial, whatever its number of rounds.
ONCE = ("data", "measuring", "inference", "scoring", "references")


@dataclass(frozen=True)
class CellCost:
    """CPU seconds of a cell: per round, and once per trial."""

    round: float
    once: float


class _CostMeasurement(NamedTuple):
    """The cost of a cell, the largest share of the examples measured, and whether the cost is of that share alone."""

    cost: CellCost
    share: float
    at_least: bool


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated duration of a plan.

    Attributes:
        seconds: wall time on idle workers; NaN if it cannot be estimated, as for a third-party app.
        share: the smallest share of the examples on which a cell was measured; below 1 the rest is extrapolated.
        at_least: whether no cell could be measured on more than the smallest share, so that it takes longer.
    """

    seconds: float
    share: float = 1.0
    at_least: bool = False


def estimate(plan: Plan, refused: Mapping[str, str], jobs: int, budget: float = BUDGET) -> TimeEstimate:
    """Wall seconds for the whole plan on ``jobs`` workers, without regard to what is stored already.

    Up to `SAMPLES` cells that may run are trained for two rounds with one thread, on growing shares s of every client's and of
    the test examples, as long as the budget lasts. Where it ends before s = 1, the cost is taken from the line ``a + b s``.

    Args:
        refused: by cell id, why it may not run.
        budget: CPU seconds for the measuring.
    """
    legal = [cell for cell in plan.cells if cell.id not in refused and procedure(cell).here]
    if not legal:
        return TimeEstimate(float("nan"))
    chosen = legal[:: max(1, len(legal) // SAMPLES)][:SAMPLES]
    threads, bench = torch.get_num_threads(), Workbench()
    torch.set_num_threads(1)
    try:
        measured: list[_CostMeasurement] = []
        for cell in chosen:
            if not measured or budget > BUDGET / 50:
                begun = time.process_time()
                measured.append(_measure(cell, plan.suite.seeds[0], bench, 0.8 * budget))
                budget -= time.process_time() - begun
    finally:
        torch.set_num_threads(threads)
    whole = [one for one in measured if not one.at_least] or measured
    per_round, once = (sum(getattr(one.cost, part) for one in whole) / len(whole) for part in ("round", "once"))
    trials = [(cell.training.rounds, len(plan.suite.seeds) + selecting(cell)) for cell in legal]
    seconds = START + sum(many * (rounds * per_round + once) for rounds, many in trials) / jobs
    return TimeEstimate(seconds, min(one.share for one in whole), whole[0].at_least)


def selecting(cell: PlannedCell) -> int:
    """Largest number of trials that an ensemble needs for its choice."""
    return len(cell.members) * len(cell.ensemble.choose_on()) if cell.ensemble else 0


def _measure(cell: PlannedCell, seed: int, bench: Workbench, budget: float) -> _CostMeasurement:
    task = bench.task(cell, seed)
    shares = (
        [1.0, 1.0]
        if isinstance(task, EnvironmentTask)
        else [one for one in SHARES if one * sum(task.sizes) >= 2 * len(task.sizes)]
    )
    end = time.process_time() + budget
    found: dict[float, CellCost] = {}
    for share in shares or SHARES[-1:]:
        left = end - time.process_time()
        if left <= 0 or (len(found) > 1 and (next_cost := _extrapolate(found, share)).round + next_cost.once > left):
            break
        try:
            with at_most(left, of_cpu=True):
                found[share] = _run(
                    cell, seed, bench if share == 1.0 else _SampledWorkbench(bench, share), warm=bool(found)
                )
        except TrialTimeout:
            break
        except Exception:
            if share == 1.0:
                raise
            continue  # with so few examples a trigger, a rule or a plug-in may not work; the next share may do
    if len(found) > 1:
        return _CostMeasurement(_extrapolate(found, 1.0), max(found), at_least=False)
    share, cost = next(iter(found.items()), (SHARES[0], CellCost(0.0, 0.0)))
    return _CostMeasurement(cost, share, at_least=share < 1.0)


def _extrapolate(found: Mapping[float, CellCost], share: float) -> CellCost:
    """The line through the costs of the last two shares, evaluated at another share; at the last share, its cost."""
    (s, low), (t, high) = list(found.items())[-2:]
    along = (share - t) / (t - s)
    return CellCost(*(max(b, b + (b - a) * along) for a, b in ((low.round, high.round), (low.once, high.once))))


def _run(cell: PlannedCell, seed: int, bench: Workbench, warm: bool) -> CellCost:
    """The cost of a training of two rounds: the second gives the cost of a round, since the first has one-time costs.

    Args:
        warm: whether libraries are loaded; then all time outside of rounds is the one-time cost of a trial.
    """
    ended: list[float] = []
    training = cell.training.model_copy(update={"rounds": 2})
    changed = {
        "observer": cell.config.observer.model_copy(update={"round": 1}),
        # Simulated time asks for an evaluation of each round, too, and holds back its report until the next one.
        "evaluation": cell.config.evaluation.model_copy(update={"seconds": None, "until": None}),
    }
    short = cell.with_parts(training=training, config=cell.config.model_copy(update=changed))
    record = run_trial(short, seed, {}, bench, progress=lambda *_: ended.append(time.process_time()))[0]
    cost: Mapping[str, Any] = record["cost"] or {}
    stages = sum(stage["cpu_seconds"] for name, stage in cost["stages"].items() if name in ONCE)
    a_round = ended[1] - ended[0]
    return CellCost(a_round, max(stages, cost["cpu_seconds"] - 2 * a_round) if warm else stages)


class _SampledWorkbench(Workbench):
    """A workbench on which each client, and the test set, has a share of its examples, evenly spaced, and one at least."""

    def __init__(self, whole: Workbench, share: float) -> None:
        super().__init__()
        self._whole, self._share = whole, share

    def task(self, cell: PlannedCell, seed: int) -> Classification | EnvironmentTask:
        task = self._whole.task(cell, seed)
        if isinstance(task, EnvironmentTask):
            return task
        thinned = task.with_examples({client: self._thin(part) for client, part in enumerate(task.parts)})
        return dataclasses.replace(
            thinned, dataset=dataclasses.replace(task.dataset, test=self._thin(task.dataset.test))
        )

    def _thin(self, examples: Examples) -> Examples:
        kept = max(1, round(self._share * len(examples)))
        return examples[torch.linspace(0, len(examples) - 1, kept).long()]
