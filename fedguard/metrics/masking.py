"""Results of secure aggregation in one training: anonymity sets, exactness of the sums, and traffic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Amount, Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport


class SumDeviation(TypedDict):
    """Deviation of decoded sums, in norms of the true mean.

    Attributes:
        mean, max: over the rounds.
    """

    mean: Amount
    max: Amount


class ProtocolExclusions(TypedDict):
    """Numbers of clients that the protocol had excluded at the end.

    Attributes:
        hostile, honest: numbers of malicious and honest ones.
    """

    hostile: Count
    honest: Count


class MaskingMetrics(TypedDict):
    """Sessions of secure aggregation.

    Attributes:
        rounds, sessions, aborted_sessions, why_aborted, aborted_rounds: numbers of rounds and sessions, of aborted sessions,
            the first reason, and number of rounds without any sum.
        survivors: mean number of clients in the sums of a round.
        anonymity: the fewest clients, less those that may collude, in any sum that the server could form in any round.
        error: deviation of the sums, noise included.
        clipped: share of the honest updates that was clipped, mean over the rounds.
        bytes_up, bytes_down: for each client in each round.
        left_out: clients that the protocol had excluded at the end.
    """

    rounds: Count
    sessions: Count
    aborted_sessions: Count
    why_aborted: str | None
    aborted_rounds: Count
    survivors: Amount
    anonymity: int | None
    error: SumDeviation | None
    clipped: Share
    bytes_up: Amount
    bytes_down: Amount
    left_out: ProtocolExclusions


def summarize_sessions(reports: Sequence[RoundReport], malicious: Collection[int]) -> MaskingMetrics | None:
    """The sessions in a record; None without masks.

    Args:
        malicious: the malicious clients, to classify those that a group test has excluded.
    """
    masked = [report for report in reports if report.masked is not None]
    rounds = [report.masked for report in masked if report.masked is not None]
    if not rounds:
        return None
    aborted = [why for one in rounds for why in one.aborted]
    errors = [one.error for one in rounds if one.error is not None]
    came = sum(one.clients for one in rounds)
    out = masked[-1].without_row
    return {
        "rounds": len(rounds),
        "sessions": sum(one.sessions for one in rounds),
        "aborted_sessions": len(aborted),
        "why_aborted": aborted[0] if aborted else None,
        "aborted_rounds": sum(one.survivors == 0 for one in rounds),
        "survivors": sum(one.survivors for one in rounds) / len(rounds),
        "anonymity": min((one.anonymity for one in rounds if one.anonymity is not None), default=None),
        "error": {"mean": sum(errors) / len(errors), "max": max(errors)} if errors else None,
        "clipped": sum(one.clipped for one in rounds) / len(rounds),
        "bytes_up": sum(one.bytes_up for one in rounds) / came if came else 0.0,
        "bytes_down": sum(one.bytes_down for one in rounds) / came if came else 0.0,
        "left_out": {
            "hostile": sum(client in malicious for client in out),
            "honest": sum(client not in malicious for client in out),
        },
    }
