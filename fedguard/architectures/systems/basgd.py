"""BASGD: one buffer for each few clients, and an aggregate of their means when none is empty (Yang & Li, ICML 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.architectures.systems.event_server import EventServer
from fedguard.architectures.systems.mapreduce import CombinerMasking, CombinerReceiver
from fedguard.contracts import (
    Cell,
    Exposure,
    Participation,
    PositiveInt,
    ReceivedRound,
    Receiver,
    SentRound,
    Setup,
    Sight,
)
from fedguard.simulated.barriers import Barrier, covers


@dataclass(frozen=True, kw_only=True)
class BASGD(EventServer):
    """Few clients to a buffer, an aggregate when none is empty.

    $w <- w + server_lr * R(h_1, ..., h_B)$ with $h_b$ the mean of the updates that came into buffer b since the last
    aggregate; client i always sends to buffer $i mod B$, starting with 0. R is the rule of the cell.

    A malicious client spoils one buffer, however fast it answers: of B rows at most f are spoiled, as the rule assumes, and a
    robust rule needs $B >= 2 f + 1$. The server sees only the means. The source also moves clients of a starving buffer to
    another one; here each stays in its buffer. A buffer without a usable update has no row, and an aggregate with too few rows
    for the rule is abandoned.

    Args:
        buffers: B. With one buffer each update is an aggregate of its own; with as many as clients, no second update of a
            client counts before the first of all others.
    """

    name = "basgd"
    source = "Yang and Li, BASGD: Buffered Asynchronous SGD for Byzantine Learning, ICML 2021"
    exposes = Exposure(server=Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL, clients=EventServer.exposes.clients)

    buffers: PositiveInt = 5

    @property
    def more_rows(self) -> str:
        return "Here n counts buffers: raise their number."

    def barrier(self, clients: Participation) -> Barrier:
        return covers(self.buffers)

    def updates(self, clients: Participation) -> int:
        """The number of clients, since each malicious client may spoil a buffer in any aggregate."""
        return clients.total

    def rows(self, updates: int) -> int:
        return min(self.buffers, updates)

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.protocol.masked:
            yield (
                "the server of basgd adds up what comes into each buffer, and a client may come into it twice before a session "
                "of secure aggregation could sum it. Set secure_aggregation: none, or use fedbuff."
            )
        if self.buffers > cell.clients.total:
            yield (
                f"a buffer into which no client sends stays empty for ever, and there are {self.buffers} for "
                f"{cell.clients.total} clients. Lower buffers to {cell.clients.total}."
            )

    def as_trained(self, setup: Setup) -> Setup:
        buffered = BufferMasking(combiners=self.buffers)
        return setup.with_parts(protocol=replace(setup.cell.protocol, secure_aggregation=buffered))


@dataclass(frozen=True, kw_only=True)
class BufferMasking(CombinerMasking):
    """Updates travel as they are, and the rule gets the mean of each buffer; no mode that a suite can set."""

    name = "buffered"
    words = "The server's rule sees the mean of each buffer."

    def receiver(self, setup: Setup) -> Receiver:
        return BufferReceiver(setup, self.combiners)


class BufferReceiver(CombinerReceiver):
    """One row for each buffer that holds anything usable."""

    def groups(self, sent: SentRound, each: ReceivedRound) -> list[Tensor]:
        # By number, not drawn: a client that could come into several buffers would spoil more than one
        into = torch.tensor([client % self.combiners for (client,) in each.behind])
        return [(into == buffer).nonzero()[:, 0] for buffer in sorted(set(into.tolist()))]

    def spoilers(self, each: ReceivedRound) -> int:
        dropped = set(each.clients) - {client for row in each.behind for client in row}
        # All f, not their share of those that arrived: one update spoils a buffer. A dropped update was malicious, since honest
        # ones are finite
        return max(0, self.setup.cell.assumed_f - len(dropped))
