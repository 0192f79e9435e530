"""Who takes part when: how the clients of a round are drawn, and which are there at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Stay:
    """Clients that are not there all the time.

    Args:
        clients: how many.
        joins: the first round (from 1) in which they may be chosen.
        leaves: the first one in which they no longer may; None where they stay to the end.
    """

    clients: int
    joins: int = 1
    leaves: int | None = None

    def there(self, round: int) -> bool:
        return self.joins <= round and (self.leaves is None or round < self.leaves)


@dataclass(frozen=True, kw_only=True)
class Participation:
    """Who takes part in a round.

    Args:
        total: number of clients, those included that come later or leave early.
        per_round: how many are chosen: a whole number of clients, or a fraction of them in (0, 1].
        sampling: ``fixed`` draws exactly that many without replacement; ``poisson`` draws each client on its own
            with that probability, so that the number varies; ``cyclic`` draws nothing: the clients are dealt into
            ``total / per_round`` groups, by their numbers and in public, which take turns.
        schedule: who is not there all the time. The first entry speaks of the clients with the lowest numbers, the next of
            those that follow; the rest are always there. Where fewer are there than are to be drawn, all of these take part.
        most_trainings: of one client, where each goes on by itself in simulated time; one that has begun so many takes no more
            part. None for no limit.
    """

    total: int
    per_round: int | float = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"
    schedule: tuple[Stay, ...] = ()
    most_trainings: int | None = None

    @property
    def expected(self) -> int:
        """Number of clients in a round in which all are there; under Poisson sampling, its mean, rounded."""
        count = self.per_round if isinstance(self.per_round, int) else self.per_round * self.total
        return max(1, round(count))

    @property
    def most(self) -> int:
        """The largest number of clients that a round may have."""
        return self.total if self.sampling == "poisson" and self.expected < self.total else self.expected

    @property
    def scheme(self) -> Literal["fixed", "poisson", "cyclic", "none"]:
        """The sampling; ``none`` where all clients take part in each round."""
        return "none" if self.expected == self.total else self.sampling

    @property
    def separation(self) -> int:
        """The fewest rounds from one participation of a client to its next, whatever is drawn."""
        return self.total // self.expected if self.sampling == "cyclic" else 1

    def participations(self, rounds: int) -> int:
        """In how many of so many rounds one client may take part, whatever is drawn."""
        return -(-rounds // self.separation)

    def there(self, round: int) -> tuple[int, ...]:
        """The clients that may be chosen in a round (from 1), in ascending order."""
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
    """How updates meet where who takes part follows from simulated time: so no sampling hides anybody.

    Attributes:
        updates: of one aggregate, as planned: what a noisy sum of them is divided by.
        most: how many updates of one client all aggregates of the training may hold together; None where nothing bounds it.
        in_one: how many of these one aggregate may hold.
        if_all_arrive: whether ``most`` holds only if no update is lost; else the course says how many there are, before
            anything is trained (`Architecture.resolve_meeting`).
        ended: how many trainings of one client may end, whatever becomes of their updates; None for ``most``.
    """

    updates: int
    most: int | None
    in_one: int = 1
    if_all_arrive: bool = False
    ended: int | None = None

    @property
    def trainings(self) -> int | None:
        """How many trainings of one client may end; None where nothing bounds it."""
        return self.most if self.ended is None else self.ended
