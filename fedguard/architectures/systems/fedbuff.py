"""FedBuff: the server moves whenever its buffer is full (Nguyen et al., AISTATS 2022)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from annotated_types import Interval

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Cell, Participation
from fedguard.simulated.barriers import Barrier, buffer_barrier


@dataclass(frozen=True, kw_only=True)
class FedBuff(EventServer):
    """Clients train all the time, and the server aggregates whenever its buffer is full.

    $w <- w + eta R(s_1 u_1, ..., s_B u_B)$ as soon as B updates have come, with $s_i = (1 + tau_i)^{-1/2}$ where $u_i$ was
    trained from the model of $tau_i$ aggregates ago. R is the rule of the cell, eta is ``server_lr``. Nobody waits for anybody.

    Under secure aggregation the clients with updates in a full buffer run a session; further updates of a client in the buffer
    wait for the next one. Each client scales its own update, since nobody else has it; a malicious client does not. Keys are
    agreed on when updates are ready, so the messages of a session take no training time.

    Args:
        buffer: B.
        scaled: whether stale updates count for less; otherwise all $s_i$ are 1.
        once: whether a client is in a buffer at most once, as under secure aggregation; its further updates wait for the next
            buffer. Rules that look up clients can then run.
    """

    name = "fedbuff"
    source = "Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022"

    buffer: Annotated[int, Interval(ge=1, le=100_000)] = 10
    scaled: bool = True
    once: bool = False

    later: ClassVar = {"once": False}

    @property
    def more_rows(self) -> str:
        return "Here n counts the updates of one buffer: raise buffer."

    def barrier(self, clients: Participation) -> Barrier:
        return replace(buffer_barrier(self.buffer), once=self.once)

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if self.once and self.buffer > cell.clients.total:
            yield (
                f"a client is in a buffer once, and {self.buffer} updates of {cell.clients.total} clients never meet in one. "
                "Lower buffer, or leave out once."
            )

    def updates(self, clients: Participation) -> int:
        return self.buffer

    def sessions(self, cell: Cell) -> Cell:
        # A session has the clients of one buffer, whatever clients.per_round says of those at work
        return replace(cell, clients=replace(cell.clients, per_round=self.buffer, sampling="fixed"))

    def weight(self, staleness: int) -> float:
        return (1 + staleness) ** -0.5 if self.scaled else 1.0
