"""The figures of simulated time: how long a training took, how old its updates were, what it cost the devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Literal, NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Amount, Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport

#: Trainings that a timeline holds.
MOST = 500


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
    """The first trainings of a simulated course that ended; see `fedguard.contracts.Span`.

    Attributes:
        client: whose, one entry for each training, as in the lists that follow.
        began, ended: in simulated seconds.
        fate: what became of it.
        malicious: those of these clients who act for the attack at any time.
        rounds: when each round ended, of those in which these trainings did.
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
    """A training in simulated time; see `fedguard.contracts.RoundTiming`.

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


class Axes(TypedDict, total=False):
    """What else than rounds evaluations stand over: steps where actors act, and the others where there is simulated time.

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
    """What a record says of a training in simulated time; None of one without."""
    moments = [report.moment for report in reports if report.moment is not None]
    if not moments:
        return None
    last, counts = moments[-1], Counter(age for moment in moments for age in moment.staleness)
    updates, ages = sum(report.received for report in reports), sum(counts.values())
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
        "late": sum(len(moment.late) for moment in moments),
        "interrupted": sum(len(moment.interrupted) for moment in moments),
        "lost": sum(len(moment.lost) for moment in moments),
        "malicious_share": malicious / updates if updates else 0.0,
        "timeline": timeline(reports),
    }


def timeline(reports: Sequence[RoundReport]) -> Timeline:
    """Who trained when: the first `MOST` trainings that ended, with times rounded to microseconds."""
    told = [report for report in reports if report.moment is not None]
    spans = ((span, report) for report in told if report.moment is not None for span in report.moment.spans)
    shown = list(islice(spans, MOST))
    last = shown[-1][1].round if shown else 0
    acting = {client for report in told if report.moment is not None for client in report.moment.acting}
    return {
        "client": [span.client for span, _ in shown],
        "began": [round(span.began, 6) for span, _ in shown],
        "ended": [round(span.ended, 6) for span, _ in shown],
        "fate": [span.fate for span, _ in shown],
        "malicious": sorted(acting & {span.client for span, _ in shown}),
        "rounds": [round(report.moment.seconds, 6) for report in told if report.moment and report.round <= last],
        "total": sum(len(report.moment.spans) for report in told if report.moment is not None),
    }


def axes(reports: Sequence[RoundReport], steps: int = 0) -> Axes:
    """The axes beside the rounds.

    Args:
        steps: of environments behind each update; 0 where nobody acts.
    """
    arrived = list(accumulate(report.received for report in reports))
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
