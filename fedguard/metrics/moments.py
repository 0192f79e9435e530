"""The figures of simulated time: how long a training took, how old its updates were, what it cost the devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from fedguard.contracts import RoundReport

#: Trainings that a timeline holds.
MOST = 500


def in_time(reports: Sequence[RoundReport]) -> dict[str, Any]:
    """What a record says of a training in simulated time; nothing of one without.

    Returns:
        time, with seconds, computed, joules, bytes_up, bytes_down: at its end, see `fedguard.contracts.Moment`;
        updates_a_second: that reached the server; releases: how often it aggregated;
        staleness: the mean, the largest, and the number of updates by staleness from 0; late, interrupted, lost: trainings that
        the server did not wait for, or whose device left, and updates that the network lost; malicious_share:
        of the updates that reached the server; timeline: see `timeline`.
    """
    moments = [report.moment for report in reports if report.moment is not None]
    if not moments:
        return {}
    last, counts = moments[-1], Counter(age for moment in moments for age in moment.staleness)
    updates, ages = sum(report.received for report in reports), sum(counts.values())
    malicious = sum(client in report.malicious for report in reports for client in report.clients)
    time = {
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
    return {"time": time}


def timeline(reports: Sequence[RoundReport]) -> dict[str, Any]:
    """Who trained when: the first `MOST` trainings that ended, as columns of one length, with times rounded to microseconds.

    Returns:
        client, began, ended, fate: as a `fedguard.contracts.Span` has them; malicious: those of these clients who act for the
        attack at any time; rounds: when each round ended, of those in which these trainings did;
        total: how many trainings ended in all.
    """
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


def axes(reports: Sequence[RoundReport]) -> dict[str, list[float]]:
    """What else than rounds evaluations stand over: updates that reached the server, seconds, bytes sent, joules."""
    if any(report.moment is None for report in reports):
        return {}
    updates = 0
    found: dict[str, list[float]] = {"updates": [], "seconds": [], "bytes_up": [], "joules": []}
    for report in reports:
        updates += report.received
        if report.evaluation is not None and report.moment is not None:
            at = (updates, report.moment.seconds, report.moment.bytes_up, report.moment.joules)
            for values, value in zip(found.values(), at, strict=True):
                values.append(value)
    return found
