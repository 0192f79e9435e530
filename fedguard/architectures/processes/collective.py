"""One node of an all-reduce as a process: it follows the schedule, and adds received chunks to its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.collectives.schedule import Schedule
from fedguard.architectures.malicious import KnownBy, MaliciousClients
from fedguard.architectures.processes.links import ProcessLinks, VectorTransfer
from fedguard.architectures.sides import Sides
from fedguard.architectures.systems.all_reduce import AllReduce
from fedguard.architectures.systems.sums import SumRun
from fedguard.contracts import Setup


def models(architecture: AllReduce, setup: Setup, links: ProcessLinks) -> Iterator[Tensor]:
    """float32 ``[d]``: this node's copy of the model after each round."""
    return CollectiveNodeProcess(architecture, setup, links).models()


def exchange_chunks(
    links: ProcessLinks, schedule: Schedule, chunks: Sequence[Tensor], added: Sequence[Tensor] | None
) -> list[Tensor]:
    """Final value of each chunk in this process: `simulate_chunk`, as seen by one node.

    Args:
        chunks: its own vector, cut; not changed.
        added: what a malicious node adds to the first sum of others that it passes on, cut.
    """
    held, due, holding = list(chunks), dict(enumerate(added or ())), set[int]()
    for step in schedule.steps:
        out = [message for message in step if message.source == links.rank]
        into = [(message, torch.empty_like(held[message.chunk])) for message in step if message.to == links.rank]
        for chunk in {message.chunk for message in out} & holding & due.keys():
            held[chunk] = held[chunk] + due.pop(chunk)
        links.exchange(
            [VectorTransfer(message.to, held[message.chunk], message.chunk) for message in out],
            [VectorTransfer(message.source, got, message.chunk) for message, got in into],
        )
        for message, got in into:
            held[message.chunk] = held[message.chunk] + got if message.adds else got
            holding |= {message.chunk} if message.adds else set()
    return held


class CollectiveNodeProcess(SumRun):
    """The sum from the view of one node. Updates of others are NaN here, and so is all that follows from them.

    A malicious node taps all links, as the threat model grants it, and crafts in its own process.
    """

    def __init__(self, system: AllReduce, setup: Setup, links: ProcessLinks) -> None:
        super().__init__(system, replace(setup, trainer=LocalTrainer(setup, links).train))
        self._links = links
        if setup.cell.attack is None or links.rank not in setup.malicious:
            self.clients.malicious = RemoteMaliciousClients(self.setup, self.clients.local, _nobody)

    def models(self) -> Iterator[Tensor]:
        """The model after each round."""
        for plan in self.plan_rounds():
            received = self.receive_updates(self.train(plan, self.model))
            result = self.aggregate(plan, received)
            if isinstance(result, Aggregate):
                self.states = result.states
                self.move(result.vector, received)
            yield self.model

    def sum_vectors(
        self,
        schedule: Schedule,
        vectors: Sequence[Tensor],
        added: Mapping[int, Tensor],
        handed: Mapping[int, Tensor],
        some: int | None,
    ) -> Tensor:
        """float32 ``[1, d]``: what this process ends with."""
        me, cuts = self._links.rank, self.cuts(schedule)
        more = [added[me][cut] for cut in cuts] if me in added else None
        return torch.cat(exchange_chunks(self._links, schedule, [vectors[me][cut] for cut in cuts], more))[None]


class LocalTrainer:
    """A trainer for the client of this process only, which sends its update to the nodes that tap the links."""

    def __init__(self, setup: Setup, links: ProcessLinks) -> None:
        self._clients, self._links = Clients(setup), links
        self._liars = sorted(setup.malicious) if setup.cell.attack else []

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> list[Tensor]:
        me, rows = self._links.rank, torch.full((len(clients), model.shape[-1]), math.nan)
        sent, received = list[VectorTransfer](), list[VectorTransfer]()
        if me in clients:
            place = clients.index(me)
            rows[place] = self._clients.train_client(me, rounds[place], model)
            sent = [VectorTransfer(liar, rows[place]) for liar in self._liars]
        elif me in self._liars:
            received = [VectorTransfer(client, row) for client, row in zip(clients, rows, strict=True)]
        self._links.exchange(sent, received)
        return list(rows)


class RemoteMaliciousClients(MaliciousClients):
    """Malicious clients in other processes: their rows are NaN here."""

    def choose_senders(self, malicious: tuple[int, ...], round: int, model: Tensor) -> tuple[int, ...]:
        return malicious

    def craft(self, model: Tensor, round: int, sides: Sides, known_rule: KnownBy, **_: object) -> None:
        sides.malicious_rows.fill_(math.nan)


def _nobody(*_: object) -> None:
    """Trains nobody."""
