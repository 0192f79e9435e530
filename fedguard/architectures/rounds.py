"""The round of every architecture in which one model goes to many clients: this is the loop that trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.release import measure_bias, release_aggregate, report_round
from fedguard.architectures.watch import ANOTHER_MODEL, choose_model, copy_messages, observe_round
from fedguard.architectures.wire import transmit
from fedguard.contracts import Cell, ReceivedRound, RoundObservation, RoundReport, SentRound, Setup, State


@dataclass(frozen=True)
class RoundPlan:
    """What a round begins with.

    Attributes:
        number: number of the aggregate, from 1; in simulated time a round may have several.
        round: round of the training, from 1, which the threat counts by.
        chosen: clients that are asked to train.
        due: whether the model is evaluated after it.
    """

    number: int
    round: int
    chosen: tuple[int, ...]
    due: bool


Plan = TypeVar("Plan", bound=RoundPlan)


class Rounds(ABC, Generic[Plan]):
    """One training, with what it keeps from round to round.

    Attributes:
        model: float32 ``[d]``: the global model.
        states: state of each stage of the pipeline.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.clients = setup, Clients(setup)
        self.model = setup.task.initial_model(setup.rng.child("model"))
        self.states: tuple[State, ...] = ()
        self._step = ServerStep(setup.cell, self.model)
        #: A server that is trusted to add noise, and its state
        self._private = setup.cell.noise.at_server(setup.cell)
        self._noise = self._private.start() if self._private else None

    def reports(self) -> Iterator[RoundReport]:
        """A report of each round."""
        for plan in self.plan_rounds():
            yield self.play_round(plan)

    def play_round(self, plan: Plan) -> RoundReport:
        """One round: the clients train, their updates are sent, received and aggregated, and the model moves."""
        setup, stage, model, clip = self.setup, self.setup.stopwatch.stage, self.model, self.clip
        seen: SentRound | None = None
        before = self.clients.statistics.current
        watches = setup.observer is not None and setup.observer.watches(plan.round)
        given = choose_model(setup, model) if watches else model
        sent = self.train(plan, given)
        with stage("aggregation"):
            sent = transmit(setup, sent)
        if watches:
            # Before the updates are received, since their memory is reused
            with stage("inference"):
                seen = copy_messages(sent)
        with stage("masking" if setup.cell.masking.masked else "aggregation"):
            received = self.receive_updates(sent)
        with stage("aggregation"):
            kept = given is model or self._noise is not None
            result = self.aggregate(plan, received) if kept else ANOTHER_MODEL
        if isinstance(result, Aggregate):
            self.states = result.states
            with stage("model"):
                self.move(result.vector, received)
                self.clients.statistics.settle(received, plan.number)
        if setup.keep:
            with stage("measuring"):
                moved = (result.vector, result.weights) if isinstance(result, Aggregate) else (None, None)
                setup.keep(plan.round, received, *moved)
        watched: tuple[RoundObservation, ...] = ()
        if seen is not None:
            with stage("inference"):
                watched = (replace(observe_round(seen, received, result, self.model, self.gain), statistics=before),)
        bias = measure_bias(setup, model, received) if plan.due else None
        report = report_round(setup, self.clients, self.model, plan.round, received, result, plan.due, bias=bias)
        report = replace(report, chosen=plan.chosen, clip=clip, watched=watched)
        return self.complete_report(plan, received, report)

    @abstractmethod
    def plan_rounds(self) -> Iterator[Plan]:
        """The rounds, in order; what a round begins with is asked for when the one before is over."""

    @abstractmethod
    def train(self, plan: Plan, model: Tensor) -> SentRound:
        """What the clients that received ``model`` (float32 ``[d]``) have ready, malicious ones included.

        Clients in the session of the round whose update does not arrive have a fate there, and no row.
        """

    @abstractmethod
    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        """What the server, or every node, has of the updates."""

    def aggregate(self, plan: Plan, received: ReceivedRound) -> Aggregate | str:
        """The aggregate; or why there is none."""
        return release_aggregate(self.setup, self.model, plan.number, received, self.states)

    def move(self, vector: Tensor, received: ReceivedRound) -> None:
        """Move the model by the aggregate, float32 ``[d]``."""
        arrived = [client for behind in received.behind for client in behind]
        vector = self.clients.local.settle(vector, arrived, self.model)
        # The gain comes before the optimizer, whose moments are of the scaled aggregates
        self.model = self._step.apply_update(self.model, vector if self.gain == 1.0 else vector * self.gain)

    def complete_report(self, plan: Plan, received: ReceivedRound, report: RoundReport) -> RoundReport:
        """The report with what this architecture alone knows, after the model has moved."""
        return report

    @property
    def gain(self) -> float:
        """Factor of an aggregate before the server's step."""
        return 1.0

    @property
    def clip(self) -> float | None:
        """Clipping bound of an update in the next aggregate, if a server adds noise."""
        return self._noise.clip if self._noise else None


class ServerStep:
    """The server's optimizer and its state.

    Args:
        model: float32 ``[d]``, the first model.
    """

    def __init__(self, cell: Cell, model: Tensor) -> None:
        training = self._training = cell.training
        self._factor = cell.server_step
        self._velocity = torch.zeros_like(model)
        self._moments = training.server_optimizer.start(model) if training.server_optimizer else None

    def apply_update(self, model: Tensor, update: Tensor) -> Tensor:
        """The model after the round, float32 ``[d]``, from the one before it and the aggregate (both float32 ``[d]``)."""
        training = self._training
        if training.server_optimizer and self._moments:
            step, self._moments = training.server_optimizer.move(update, self._moments)
        elif training.server_momentum:
            step = self._velocity = training.server_momentum * self._velocity + update
        else:
            step = update
        return model + self._factor * step


def count_outvoted(received: ReceivedRound) -> int:
    """1 if more rows are malicious than the rule assumes; 0 if not."""
    rows = sum(not received.sent.malicious.isdisjoint(row) for row in received.behind)
    return int(rows > received.assumed_f)
