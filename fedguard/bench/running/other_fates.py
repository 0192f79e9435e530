"""The accuracy that one training has with the running statistics of other fates (`evaluation.statistics`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from fedguard.algorithms.client_state import start_algorithm
from fedguard.architectures.statistics import RunningStatistics
from fedguard.config import PlannedCell
from fedguard.contracts import ReceivedRound, RoundReport, Setup
from fedguard.contracts.cell import honest_plan
from fedguard.contracts.channels import STATISTICS
from fedguard.errors import PreconditionError
from fedguard.metrics.trajectory import judge_last
from fedguard.rng import Rng
from fedguard.tasks.cohort import schedule
from fedguard.tasks.statistics import join_single, momenta

#: As `fedguard.contracts.Setup.keep`
Keeper = Callable[[int, ReceivedRound, Tensor | None, Tensor | None], None]


class OtherFates:
    """The running statistics of other fates, from the messages of one training.

    Training normalizes by batches and never reads running statistics, so that all fates have the same parameters. What a
    client has after k batches is affine in where it starts, by channel with the layer's momentum m:

    $out = (1 - m)^k * start + own$, hence $out' = out + (1 - m)^k (start' - start)$.

    So the messages of a fate that sends its statistics tell what clients would have sent under any other.

    Args:
        cell: its ``compared_fates`` are the others.
    """

    def __init__(self, cell: PlannedCell, setup: Setup) -> None:
        self._setup, self._reports = setup, list[RoundReport]()
        self._algorithm = start_algorithm(setup)
        self._here = RunningStatistics(setup)
        self._others = {
            str(fate): RunningStatistics(replace(setup, cell=replace(setup.cell, statistics=fate)))
            for fate in cell.compared_fates
            if fate.normalization == "running"
        }
        self._accuracies: dict[str, dict[int, float]] = {str(fate): {} for fate in cell.compared_fates}

    def also(self, keep: Keeper | None) -> Keeper:
        """What follows the rounds for these fates, and for a replay if there is one."""

        def both(round: int, received: ReceivedRound, aggregate: Tensor | None, weights: Tensor | None) -> None:
            self.keep(round, received, aggregate)
            if keep is not None:
                keep(round, received, aggregate, weights)

        return both

    def keep(self, round: int, received: ReceivedRound, aggregate: Tensor | None) -> None:
        """Follow a round: what arrived in it, and the aggregate, None for a round that moves nothing."""
        sent, clients = received.sent.statistics, received.sent.senders
        if not clients:
            return
        rows, start = torch.stack([sent[client] for client in clients]), self._here.current
        left = torch.stack([self._remainder(client, sent[client], start) for client in clients])
        for running in self._others.values():
            running.begin()
            other = running.start(clients)
            assert other is not None  # statistics without numbers are refused
            other.out.copy_(rows + left * (other.start - start))
            running.note(clients, other)
            self._settle(running, running.send(clients, received.sent.malicious), round, received, aggregate)
        self._settle(self._here, sent, round, received, aggregate)

    def evaluate(self, report: RoundReport) -> None:
        """Evaluate the model of a round with each fate, in the rounds that are evaluated."""
        if report.evaluation is None:
            return
        with self._setup.stopwatch.stage("evaluation"):
            for name, accuracies in self._accuracies.items():
                running = self._others.get(name)  # None normalizes by the test batch
                statistics = None if running is None else running.for_evaluation(report.model)
                accuracies[report.round] = self._algorithm.evaluate(report.model, statistics).accuracy

    def accuracies(self, reports: Sequence[RoundReport]) -> dict[str, float]:
        """The final accuracy with each fate: the mean over the same evaluations as with the training's own."""
        last = [report.round for report in judge_last(reports)]
        return {name: fmean(found[round] for round in last) for name, found in self._accuracies.items()}

    def _settle(
        self,
        running: RunningStatistics,
        sent: Mapping[int, Tensor],
        round: int,
        received: ReceivedRound,
        aggregate: Tensor | None,
    ) -> None:
        if aggregate is not None:
            running.settle(replace(received, sent=replace(received.sent, statistics=sent)), round)

    def _remainder(self, client: int, out: Tensor, start: Tensor) -> Tensor:
        """float32 ``[s]``: the share of where a client started that is left in its statistics."""
        if torch.equal(out, start):
            return torch.ones_like(start)  # it has not trained
        task, plan = self._setup.task, honest_plan(self._setup)
        batches = schedule(plan, task.sizes[client], Rng(0).numpy())
        steps = len(join_single(batches, self._setup.cell.model.name))
        return (1 - momenta(task.module)) ** steps


def check_other_fates(cell: PlannedCell, setup: Setup) -> None:
    """Check that a cell can tell its accuracy with other fates.

    Raises:
        PreconditionError: why it cannot.
    """
    for reason in _why_not(cell, setup) if cell.compared_fates else ():
        raise PreconditionError(f"evaluation.statistics: {reason}")


def _why_not(cell: PlannedCell, setup: Setup) -> Iterator[str]:
    own, which = cell.statistics, "weighted, average or pooled"
    if not setup.task.statistics.layers:
        yield f"{cell.model.name} has no layer that normalizes over batches. Leave it out."
    elif not own.sends or own.fresh:
        yield (
            f"expected training.statistics: {which}, whose messages tell what clients would send under another fate; got "
            f"{own.name}. Set one of these."
        )
    for fate in cell.compared_fates:
        if fate.normalization == "constant":
            yield f"{fate.name} trains other parameters, since layers normalize by constants. Sweep training.statistics."
    if cell.masking.masked:
        yield f"under secure_aggregation: {cell.masking.name} nobody sees a client's statistics. Set secure_aggregation: none."
    if cell.architecture.name != "server" or not cell.algorithm.only_updates or cell.pipeline.transforms:
        yield (
            "expected architecture: server, algorithm: fedavg, fedsgd or fedprox, and no defense at the clients, where the "
            "number of a client's batches is known. Sweep training.statistics."
        )
    if cell.attack is not None and STATISTICS in cell.attack.lies:
        yield f"{cell.attack.name} lies about statistics, differently under another fate. Sweep training.statistics."
    if cell.protocol.dropout.rate and any(fate.local for fate in cell.compared_fates):
        yield "with dropouts nobody knows the statistics that a silent client keeps. Leave out local, or protocol.dropout."
