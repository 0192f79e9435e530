"""What a record tells of simulated time."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import Amount, Count, Share


class Staleness(TypedDict):
    """How many aggregates there were between an update's model and the update.

    Attributes:
        mean, largest: over all updates.
        counts: numbers of updates, by staleness from 0.
    """

    mean: Amount | None
    largest: Count
    counts: list[Count]


class Timeline(TypedDict):
    """The first trainings of a simulated course that ended; see `fedguard.metrics.moments.timeline`.

    Attributes:
        client: whose, one entry for each training, as in the lists that follow.
        began, ended: in simulated seconds.
        fate: what became of it.
        malicious: those of these clients who act for the attack.
        rounds: when rounds ended.
        total: trainings that ended in all.
    """

    client: list[Count]
    began: list[Amount]
    ended: list[Amount]
    fate: list[Literal["arrived", "late", "lost", "interrupted"]]
    malicious: list[Count]
    rounds: list[Amount]
    total: Count


class SimulatedTime(TypedDict):
    """A training in simulated time; see `fedguard.metrics.moments.in_time`.

    Attributes:
        seconds: at its end.
        computed: by all devices together.
        joules: of all devices.
        bytes_up, bytes_down: sent by the devices and to them.
        updates_a_second: that reached the server; null where no time passed.
        releases: how often the server aggregated.
        staleness: of the updates.
        late, interrupted, lost: trainings that nobody waited for, or whose device left, and updates that the network lost.
        malicious_share: of the updates that reached the server.
        timeline: who trained when.
    """

    seconds: Amount
    computed: Amount
    joules: Amount
    bytes_up: Count
    bytes_down: Count
    updates_a_second: Amount | None
    releases: Count
    staleness: Staleness
    late: Count
    interrupted: Count
    lost: Count
    malicious_share: Share
    timeline: NotRequired[Timeline]
