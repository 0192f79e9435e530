"""Participation: how the clients of a round are selected, and which are in the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Stay:
    """Clients that are in the federation only for some rounds.

    Args:
        clients: number of these clients.
        joins: first round (from 1) in which they may be selected.
        leaves: first round in which they may no longer be selected; None if they stay to the end.
    """

    clients: int
    joins: int = 1
    leaves: int | None = None

    def there(self, round: int) -> bool:
        return self.joins <= round and (self.leaves is None or round < self.leaves)


@dataclass(frozen=True, kw_only=True)
class Participation:
    """The clients of each round.

    Args:
        total: number of clients, including those that join later or leave early.
        per_round: number of selected clients: an integer, or a fraction of the total in (0, 1].
        sampling: ``fixed`` draws exactly this number without replacement. ``poisson`` draws each client independently with the
            corresponding probability, so the number varies. ``cyclic`` draws nothing: the clients form ``total / per_round``
            public groups by their numbers, which take turns.
        schedule: clients that join late or leave early. The first entry describes the clients with the lowest numbers, the next
            entry those that follow. All others are always in the federation. If fewer clients are in it than are to be drawn,
            all of them take part.
        most_trainings: limit of local trainings per client, if each proceeds on its own in simulated time. A client that has
            started this number takes no further part. None for no limit.
    """

    total: int
    per_round: int | float = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"
    schedule: tuple[Stay, ...] = ()
    most_trainings: int | None = None

    @property
    def expected(self) -> int:
        """Number of clients in a round if all are in the federation; under Poisson sampling its mean, rounded."""
        count = self.per_round if isinstance(self.per_round, int) else self.per_round * self.total
        return max(1, round(count))

    @property
    def most(self) -> int:
        """The largest number of clients that a round may have."""
        return self.total if self.sampling == "poisson" and self.expected < self.total else self.expected

    @property
    def scheme(self) -> Literal["fixed", "poisson", "cyclic", "none"]:
        """The sampling; ``none`` if all clients take part in each round."""
        return "none" if self.expected == self.total else self.sampling

    @property
    def separation(self) -> int:
        """The smallest number of rounds from one participation of a client to its next, for any draw."""
        return self.total // self.expected if self.sampling == "cyclic" else 1

    def participations(self, rounds: int) -> int:
        """The largest number of ``rounds`` rounds in which one client may take part, for any draw."""
        return -(-rounds // self.separation)

    def there(self, round: int) -> tuple[int, ...]:
        """The clients that may be selected in a round (from 1), in ascending order."""
        found: list[int] = []
        first = 0
        for stay in self.schedule:
            found += range(first, first + stay.clients) if stay.there(round) else ()
            first += stay.clients
        return (*found, *range(first, self.total))

    def choose(self, rng: Rng, round: int) -> tuple[int, ...]:
        """The clients of one round (from 1), in ascending order; under Poisson sampling or a schedule perhaps none."""
        there = self.there(round)
        if self.expected == self.total:
            return there
        if self.sampling == "cyclic":
            return tuple(range((round - 1) % self.separation, self.total, self.separation))
        draw = rng.numpy()
        if self.sampling == "fixed":
            taken = draw.choice(len(there), min(self.expected, len(there)), replace=False)
            return tuple(there[i] for i in sorted(taken.tolist()))
        drawn = (draw.random(self.total) < self.expected / self.total).nonzero()[0].tolist()
        return tuple(drawn if not self.schedule else sorted(set(drawn).intersection(there)))


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """How updates meet if simulated time decides who takes part. Sampling then hides no client.

    Attributes:
        updates: planned number of updates in one aggregate, by which a noisy sum is divided.
        most: largest number of updates of one client in all aggregates of the training together; None if unbounded.
        in_one: largest number of these in one aggregate.
        if_all_arrive: whether ``most`` holds only if no update is lost. Otherwise the simulation determines the number before
            anything is trained (`Architecture.resolve_meeting`).
        ended: largest number of local trainings of one client that end, whether or not their updates arrive; None for ``most``.
    """

    updates: int
    most: int | None
    in_one: int = 1
    if_all_arrive: bool = False
    ended: int | None = None

    @property
    def trainings(self) -> int | None:
        """Largest number of local trainings of one client that end; None if unbounded."""
        return self.most if self.ended is None else self.ended
