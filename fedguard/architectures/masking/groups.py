"""Masking within groups: the server sees the sum of each, and a robust rule runs on their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from fedguard.architectures.masking.full import FullMasking
from fedguard.architectures.masking.sessions import SessionRunner, receive_sums
from fedguard.contracts import (
    MASKED_SUM,
    SINGLE_UPDATES,
    Cell,
    Masking,
    ReceivedRound,
    Receiver,
    SentRound,
    Setup,
    Sight,
)
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Groups(Masking):
    """The clients of a round are dealt into groups, and the server sees the sum of each.

    All colluders of a round may be in one group, so each session withstands this number among its own clients.

    Args:
        groups: G, the number of groups; sizes differ by one at most.
        redraw: whether groups are dealt anew in each round; otherwise once, which requires all clients in each round.
    """

    name = "groups"
    hides = SINGLE_UPDATES
    shows = MASKED_SUM | Sight.GROUP_SUMS
    words = (
        "The server sees the sum of each group of clients, and its rule gets their means; nobody sees another's update."
    )
    cost = "O(log(n / G)) keys and shares and one masked vector for each client"
    remedy = "Use a rule that takes means of groups, such as median, or switch masking off."
    more_rows = "Here n counts groups: raise their number."
    example: ClassVar[Mapping[str, Any]] = {"groups": 8}

    groups: Annotated[int, Ge(2)]
    redraw: bool = True

    @property
    def of_larger_sums(self) -> Masking:
        return FullMasking()

    def sessions(self, clients: int) -> int:
        return self.groups

    def check(self, cell: Cell) -> None:
        size, clients = cell.size, cell.clients
        require(
            size.expected >= size.fewest,
            f"groups: {self.groups} groups of {clients.expected} clients have {size.expected}, of whom {size.colluders} may "
            f"collude with the server; expected at least {size.fewest} in each. "
            f"Take at most {clients.expected // size.fewest} groups, or lower colluding.",
        )
        require(
            self.redraw or clients.expected == clients.total,
            f"redraw: groups that stay the same take all clients in each round; got {clients.expected} of {clients.total}. "
            "Set redraw: true, or clients.per_round: 1.0.",
        )

    def receiver(self, setup: Setup) -> GroupsReceiver:
        return GroupsReceiver(setup, self)


class GroupsReceiver(Receiver):
    """One session for each group; one row for each session that succeeded, the mean of the updates in its sum."""

    def __init__(self, setup: Setup, plan: Groups) -> None:
        super().__init__(setup)
        self._plan, self._sessions = plan, SessionRunner(setup, setup.cell.size)

    def receive(self, sent: SentRound) -> ReceivedRound:
        groups = self.deal(sent.clients, sent.round)
        sums = [self._sessions.run(sent, group, f"group {number}") for number, group in enumerate(groups)]
        return receive_sums(self.setup, sent, sums)

    def deal(self, clients: Sequence[int], round: int) -> list[tuple[int, ...]]:
        """The groups of a round, restricted to ``clients``; some may be empty."""
        rng = self.setup.rng.child("groups", round if self._plan.redraw else 0)
        everyone = clients if self._plan.redraw else range(self.setup.cell.clients.total)
        order = rng.numpy().permutation(np.array(everyone, dtype=int)).tolist()
        groups = (order[number :: self._plan.groups] for number in range(self._plan.groups))
        return [tuple(sorted(set(group) & set(clients))) for group in groups]
