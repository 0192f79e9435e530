"""Metrics of simulated time: duration of a training, staleness of its updates, cost for the devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Literal, NotRequired, cast

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Amount, Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport

#: Largest number of local trainings in a timeline
MOST = 500


class Staleness(TypedDict):
    """Number of aggregates between an update's model and the update.

    Attributes:
        mean, largest: over all updates.
        counts: numbers of updates, by staleness from 0.
    """

    mean: Amount | None
    largest: Count
    counts: list[Count]


#: What became of the update of a training that ended: see `fedguard.contracts.Fate`
TrainingFate = Literal["arrived", "late", "lost", "interrupted"]


class Timeline(TypedDict):
    """The first local trainings that ended in a simulation; see `fedguard.contracts.LocalTraining`.

    Attributes:
        client: client of each training; the lists that follow have the same order.
        began, ended: in simulated seconds.
        fate: fate of the update.
        malicious: these clients, as far as they act for the attack at any time.
        rounds: end of each round in which one of these trainings ended.
        total: number of all trainings that ended.
    """

    client: list[Count]
    began: list[Amount]
    ended: list[Amount]
    fate: list[TrainingFate]
    malicious: list[Count]
    rounds: list[Amount]
    total: Count


class SimulatedTime(TypedDict):
    """A training in simulated time; see `fedguard.contracts.RoundTiming`.

    Attributes:
        seconds: at its end.
        computed: seconds of computation of all devices together.
        joules: energy of all devices.
        bytes_up, bytes_down: bytes sent by the devices and to them.
        updates_a_second: updates per second that reached the server; null if no time passed.
        releases: number of aggregations of the server.
        staleness: staleness of the updates.
        late, interrupted, lost: numbers of trainings that nobody waited for, and of those with a device that went offline, and
            of updates that the network lost.
        malicious_share: share of malicious updates among those that reached the server.
        timeline: which client trained when.
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


class Axes(TypedDict, total=False):
    """Axes of evaluations beside rounds: steps if actors act, and the others with simulated time.

    Attributes:
        steps: at each evaluation, steps of environments behind the updates that had reached the server.
        updates, seconds, bytes_up, joules: at each evaluation, updates that had reached the server, simulated seconds, and
            bytes and joules that the devices had sent and spent.
    """

    steps: list[Count]
    updates: list[Count]
    seconds: list[Amount]
    bytes_up: list[Count]
    joules: list[Amount]


def in_time(reports: Sequence[RoundReport]) -> SimulatedTime | None:
    """Simulated time in a record; None without it."""
    moments = [report.moment for report in reports if report.moment is not None]
    if not moments:
        return None
    last, counts = moments[-1], Counter(age for moment in moments for age in moment.staleness)
    fates = Counter[str](fate for report in reports for _, fate in report.fates)
    updates, ages = sum(len(report.clients) for report in reports), sum(counts.values())
    malicious = sum(client in report.malicious for report in reports for client in report.clients)
    return {
        "seconds": last.seconds,
        "computed": last.computed,
        "joules": last.joules,
        "bytes_up": last.bytes_up,
        "bytes_down": last.bytes_down,
        "updates_a_second": updates / last.seconds if last.seconds > 0 else None,
        "releases": sum(moment.releases for moment in moments),
        "staleness": {
            "mean": sum(age * number for age, number in counts.items()) / ages if ages else None,
            "largest": max(counts, default=0),
            "counts": [counts[age] for age in range(max(counts, default=-1) + 1)],
        },
        "late": fates["late"],
        "interrupted": fates["interrupted"],
        "lost": fates["lost"],
        "malicious_share": malicious / updates if updates else 0.0,
        "timeline": timeline(reports),
    }


def timeline(reports: Sequence[RoundReport]) -> Timeline:
    """Which client trained when: the first `MOST` trainings that ended, with times rounded to microseconds."""
    told = [report for report in reports if report.moment is not None]
    ended = ((one, report) for report in told if report.moment is not None for one in report.moment.trainings)
    shown = list(islice(ended, MOST))
    last = shown[-1][1].round if shown else 0
    acting = {client for report in told if report.moment is not None for client in report.moment.acting}
    return {
        "client": [one.client for one, _ in shown],
        "began": [round(one.began, 6) for one, _ in shown],
        "ended": [round(one.ended, 6) for one, _ in shown],
        "fate": [cast("TrainingFate", one.fate.value) for one, _ in shown],
        "malicious": sorted(acting & {one.client for one, _ in shown}),
        "rounds": [round(report.moment.seconds, 6) for report in told if report.moment and report.round <= last],
        "total": sum(len(report.moment.trainings) for report in told if report.moment is not None),
    }


def axes(reports: Sequence[RoundReport], steps: int = 0) -> Axes:
    """The axes beside the rounds.

    Args:
        steps: steps of environments behind each update; 0 without environments.
    """
    arrived = list(accumulate(len(report.clients) for report in reports))
    at = [updates for updates, report in zip(arrived, reports, strict=True) if report.evaluation is not None]
    found: Axes = {"steps": [steps * updates for updates in at]} if steps else {}
    if any(report.moment is None for report in reports):
        return found
    found |= {"updates": at, "seconds": [], "bytes_up": [], "joules": []}
    for report in reports:
        if report.evaluation is not None and report.moment is not None:
            found["seconds"].append(report.moment.seconds)
            found["bytes_up"].append(report.moment.bytes_up)
            found["joules"].append(report.moment.joules)
    return found
