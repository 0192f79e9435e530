"""Modes of secure aggregation: what the server gets of a round's updates, and what stays hidden.

A mode is one class. What it hides is compared with what rules and attacks need before anything runs (`fedguard.visibility`). In
a training it makes a `Receiver`, which connects the clients to the server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.reports import UNUSABLE, Fate
from fedguard.contracts.sight import Sight
from fedguard.contracts.wire import ReceivedRound, SentRound
from fedguard.errors import require

if TYPE_CHECKING:
    from fedguard.contracts.cell import Cell, Setup

#: What nobody sees under masks
SINGLE_UPDATES = Sight.EACH_UPDATE | Sight.HONEST_UPDATES
#: What a server sees under masks, in every mode
MASKED_SUM = Sight.SUM | Sight.MASKED | Sight.TRANSCRIPT


class Receiver(ABC):
    """A mode of secure aggregation in one training, with the state that its parties keep between rounds."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def receive(self, sent: SentRound) -> ReceivedRound:
        """What reaches the server of the clients' messages. The memory of the updates may be reused."""


class Masking(Algorithm):
    """A mode of secure aggregation with its parameters. Sights that it does not show are hidden."""

    kind: ClassVar[str] = "masking"
    #: What it hides
    hides: ClassVar[Sight] = SINGLE_UPDATES | Sight.GROUP_SUMS
    #: What it shows the server instead; a single update is never shown
    shows: ClassVar[Sight] = MASKED_SUM
    #: What the server sees for the mode itself, but no rule gets
    kept_from_rules: ClassVar[Sight] = Sight.NOTHING
    #: Whether the clients send masked vectors, of which the server sees sums
    masked: ClassVar[bool] = True
    #: Whether the server sees several sums that contain the same client
    overlapping: ClassVar[bool] = False
    #: For threat cards: who sees what
    words: ClassVar[str]
    #: What it costs the clients
    cost: ClassVar[str]
    #: What to do about a rule that it hides too much from
    remedy: ClassVar[str] = "Use mean or client_clipping >> mean, mask within groups, or switch masking off."
    #: What to do about a rule that it gives too few rows; empty if nothing helps
    more_rows: ClassVar[str] = ""
    #: Example parameters for some 100 clients, to list the defenses that can run
    example: ClassVar[Mapping[str, Any]] = {}

    @property
    def setting(self) -> Any:
        """Its form in a suite, with every parameter; a parameter with the name of the mode replaces that name."""
        values = self.parameters()
        if not values:
            return self.name
        return values if self.name in values else {self.name: values}

    @property
    def undefended(self) -> Masking:
        """The mode without its measures against malicious clients."""
        return self

    @property
    def of_larger_sums(self) -> Masking:
        """A mode with larger sums that gives the plain mean the same result, so that fewer clients suffice."""
        return self

    def sessions(self, clients: int) -> int:
        """Number of disjoint sessions into which the clients of a round are divided, with sizes that differ by one at most."""
        return 1

    def rows(self, clients: int) -> int:
        """Number of rows that the server's rule gets from this number of clients."""
        return min(self.sessions(clients), clients)

    def check(self, cell: Cell) -> None:
        """Check that it can run among these clients; no further check by default.

        Raises:
            ConfigError: parameters that exclude each other, or that do not fit clients, training or protocol.
        """

    def reasons(self, server: Sight) -> Iterator[str]:
        """Why it cannot run if the server sees this: a line for each reason."""
        return iter(())

    def smallest_sum(self, cell: Cell) -> int:
        """The fewest clients in a sum that the server can form from what it sees, if nobody drops out."""
        return cell.size.expected

    @abstractmethod
    def receiver(self, setup: Setup) -> Receiver:
        """The receiver of one training.

        Raises:
            ConfigError: it cannot keep its guarantee among these clients, or its sums do not fit the ring.
        """


class PlainReceiver(Receiver):
    """Each update travels unmasked; one row for each client that did not drop out before it sent its update."""

    def receive(self, sent: SentRound) -> ReceivedRound:
        wire, not_finite = sent.wire.without(sent.of_fate(Fate.SILENT)), sent.of_fate(*UNUSABLE)
        arrived = (*wire.clients, *not_finite)
        # Honest clients may drop out too, so a dropout is no evidence of malice: f follows from who sent. But an honest update
        # is finite, so each dropped one came from one of the malicious clients that the server assumes.
        assumed_f = max(0, self.setup.assume_f_among(len(arrived)) - len(not_finite))
        sizes, said = self.setup.task.sizes, self.setup.claims
        claims: list[float] = [said[client] if client in wire.malicious else sizes[client] for client in wire.clients]
        if wire.trainings:
            claims = [claim * training.claimed for claim, training in zip(claims, wire.trainings, strict=True)]
        samples, behind = torch.tensor(claims, dtype=torch.float64), tuple((client,) for client in wire.clients)
        return ReceivedRound(wire.updates, behind, samples, assumed_f, arrived, wire)


@dataclass(frozen=True, kw_only=True)
class NoMasking(Masking):
    """No masks: the server sees each update."""

    name = "none"
    hides = Sight.NOTHING
    shows = Sight.NOTHING
    masked = False
    words = "The server sees each update, and malicious clients who tap the wire see those of the honest clients."
    cost = "nothing: each update travels as it is"

    def rows(self, clients: int) -> int:
        return clients

    def check(self, cell: Cell) -> None:
        require(
            cell.protocol.norm_bound is None,
            "norm_bound: lengths are proven under masks, and secure_aggregation is off: the server sees them. Use the defense "
            "clip(bound=...) >> mean.",
        )

    def receiver(self, setup: Setup) -> Receiver:
        return PlainReceiver(setup)
