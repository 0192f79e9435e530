"""One server and many clients in synchronous rounds: FedSGD, FedAvg (McMahan et al., AISTATS 2017) and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.rounds import RoundPlan, Rounds
from fedguard.architectures.rule_context import ColluderPipeline, clipping
from fedguard.architectures.times import SynchronousClock
from fedguard.contracts import (
    Architecture,
    Cell,
    Exposure,
    Fate,
    ReceivedRound,
    RoundReport,
    SentRound,
    Setup,
    Sight,
)
from fedguard.contracts.channels import STATISTICS
from fedguard.memmap import round_buffer


class Server(Architecture):
    """A server that sends the model to some clients, collects their updates, aggregates them and moves the model.

    $w <- w + server_lr * v$ with $v <- server_momentum * v + R(x_1, ..., x_n)$, unless the algorithm
    (`fedguard.algorithms`) or a server optimizer (`fedguard.contracts.optimizers`) says otherwise. Without masks the
    server sees each update, and malicious clients that eavesdrop see the honest ones. What the server sees under masks is
    described in `fedguard.architectures.masking`. A server that is trusted to add noise clips and sums the updates itself,
    see `fedguard.privacy.central`.
    """

    name = "server"
    channels = frozenset({STATISTICS})
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    def reasons(self, cell: Cell) -> Iterator[str]:
        if cell.loses:
            yield (
                "server asks network for times alone, and waits for every update. Leave out network.link.loss and "
                "network.availability and set protocol.dropout, or use google."
            )

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        return ServerRounds(setup, self).reports()


class ServerRounds(Rounds[RoundPlan]):
    """The rounds of a server."""

    def __init__(self, setup: Setup, system: Architecture) -> None:
        super().__init__(setup)
        self._receiver = setup.cell.masking.receiver(setup)
        self._buffer: Tensor | None = None
        self._clock = SynchronousClock(setup, self.model, system) if setup.cell.network else None

    def plan_rounds(self) -> Iterator[RoundPlan]:
        for round in range(1, self.setup.cell.training.rounds + 1):
            yield RoundPlan(round, round, self.setup.choose_clients(round), self.setup.due(round))

    def train(self, plan: RoundPlan, model: Tensor) -> SentRound:
        self._buffer = round_buffer(len(plan.chosen), len(model), self.setup.memory, self._buffer)
        known = partial(ColluderPipeline, clipping(self.setup, self.clip), model, plan.round, self.states)
        return self.clients.send(model, plan.round, plan.chosen, known, self._buffer)

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        return self._receiver.receive(sent)

    def aggregate(self, plan: RoundPlan, received: ReceivedRound) -> Aggregate | str:
        if self._private is None or self._noise is None:
            return super().aggregate(plan, received)
        rng = self.setup.noise_rng.child("privacy", plan.round)
        vector, self._noise = self._private.release(received.rows, self._noise, rng)
        return Aggregate(vector, None, ())

    def complete_report(self, plan: RoundPlan, received: ReceivedRound, report: RoundReport) -> RoundReport:
        if self._clock is None:
            return report
        silent = report.of_fate(Fate.SILENT)
        return replace(report, moment=self._clock.after(plan.chosen, plan.round, len(report.clients), silent))
