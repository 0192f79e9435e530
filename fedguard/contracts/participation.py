"""Participation: the clients of the federation, how those of a round are selected, and how their updates meet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, model_validator

from fedguard.rng import Rng

#: The most clients of which every set is tried, where a suite asks which of them can break a rule together
MOST_SITES = 12


def _count_or_fraction(value: Any) -> int | float:
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value <= 1:
        return value
    raise ValueError("expected a number of clients (4) or a fraction of them (0.2)")


def _count_or_sites(value: Any) -> int | float | tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return _count_or_fraction(value)
    sites = {_site_number(one): one for one in value}
    if None in sites or not sites or len(sites) < len(value):
        raise ValueError(
            "expected a number of clients (4), a fraction of them (0.2) or a list of different sites such as [site 1], the "
            "first client"
        )
    return tuple(f"site {number}" for number in sorted(filter(None, sites)))


def _as_json(value: int | float | tuple[str, ...]) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _site_number(name: Any) -> int | None:
    """1 for ``site 1``; None for what is no such name."""
    found = re.fullmatch(r"site ([1-9][0-9]{0,7})", name) if isinstance(name, str) else None
    return int(found[1]) if found else None


def sites_named(value: int | float | tuple[str, ...]) -> tuple[int, ...]:
    """The clients, from 0, that are named as ``site 1`` (client 0) and so on; none for a count or a fraction."""
    return tuple(int(name.split()[1]) - 1 for name in value) if isinstance(value, tuple) else ()


CountOrFraction = Annotated[int | float, PlainValidator(_count_or_fraction)]
CountOrSites = Annotated[
    int | float | tuple[str, ...], PlainValidator(_count_or_sites), PlainSerializer(_as_json, return_type=Any)
]

_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class Stay:
    """Clients that take part in some rounds only: their number, and the rounds (from 1) in which they join and leave.

    Args:
        clients: number of these clients.
        joins: first round in which they may be selected.
        leaves: first round in which they may no longer be selected; null if they stay to the end.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    clients: CountOrFraction
    joins: Annotated[int, Field(strict=True, ge=1)] = 1
    leaves: Annotated[int, Field(strict=True, ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.leaves is not None and self.leaves <= self.joins:
            raise ValueError(f"leaves: expected a round after joins = {self.joins}; got {self.leaves}")
        return self


@dataclass(frozen=True, kw_only=True)
class Participation:
    """The clients of the federation. A number of clients is a count, or a fraction in [0, 1] with a decimal point.

    Args:
        total: number of clients in the federation, including those that join later or leave early.
        per_round: number of clients selected in a round.
        sampling: how clients are selected: exactly ``per_round`` of them at random (``fixed``), each independently with the
            same probability (``poisson``), or in groups that take turns in a public order (``cyclic``).
        schedule: clients that join or leave between rounds. The first entry describes the clients with the lowest numbers, the
            next entry those that follow; all others are always there. If fewer clients are there than are to be selected, all
            of them take part.
        malicious: number of malicious clients, which collude and are drawn by the seed; or their names: ``[site 1]`` is the
            first client, to whom a partition's ``sizes`` give the first number.
        assumed_f: number of malicious clients that the aggregation rule assumes. The default is the true number. ``unknown``
            assumes the largest minority with which the rule can run.
        most_trainings: limit of local trainings per client, for architectures in which clients proceed on their own in
            simulated time. A client that has started this number takes no further part, which bounds its epsilon before the
            run.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    total: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 20
    per_round: CountOrFraction = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"
    schedule: tuple[Stay, ...] = ()
    malicious: CountOrSites = 0
    assumed_f: Literal["unknown"] | CountOrFraction | None = None
    most_trainings: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None

    # Of a suite alone: a session of secure aggregation may have other clients than the federation (`Architecture.sessions`)
    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not 0 < self.per_round <= self.total:
            raise ValueError(
                f"per_round: expected from 1 to clients.total = {self.total} clients, or a fraction; got {self.per_round}"
            )
        if self.sampling == "cyclic" and self.total % self.expected:
            raise ValueError(
                "per_round: clients that take turns are dealt into equal groups, so expected a divisor of clients.total = "
                f"{self.total}; got {self.expected}"
            )
        scheduled = sum(self.count(stay.clients) for stay in self.schedule)
        if scheduled > self.total:
            raise ValueError(f"schedule: expected at most clients.total = {self.total} clients; got {scheduled}")
        if self.schedule and self.sampling == "cyclic":
            raise ValueError("schedule: clients that take turns are there all the time; got sampling: cyclic")
        for key, value in (("malicious", self.malicious), ("assumed_f", self.assumed_f)):
            if value is not None and value != "unknown" and self.count(value) >= self.total:
                raise ValueError(f"{key}: expected fewer than clients.total = {self.total}; got {self.count(value)}")
        if beyond := [number + 1 for number in sites_named(self.malicious) if number >= self.total]:
            raise ValueError(f"malicious: expected sites from 1 to clients.total = {self.total}; got site {beyond[0]}")
        return self

    def count(self, value: int | float | tuple[str, ...]) -> int:
        """Convert a count or a fraction of the clients, or their names, to a count."""
        if isinstance(value, tuple):
            return len(value)
        return value if isinstance(value, int) else round(value * self.total)

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
            last = first + self.count(stay.clients)
            if stay.joins <= round and (stay.leaves is None or round < stay.leaves):
                found += range(first, last)
            first = last
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
