"""Metrics of a training without a server: accuracy of each node, and the distance between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NotRequired

import numpy as np
from typing_extensions import TypedDict

from fedguard.metrics.quantities import Amount, Count, Share

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport

#: Largest number of links in a record: all of a complete graph of 64 nodes
MOST = 4032


class NodesCurve(TypedDict):
    """Over the evaluations: the worst and the best node, the mean of the models, and their distance.

    Attributes:
        accuracy: of each honest node, a list for each evaluation.
        worst, best, mean_model: accuracies.
        consensus: distance of the models; null if it is not finite.
    """

    accuracy: list[list[Share]]
    worst: list[Share]
    best: list[Share]
    mean_model: list[Share]
    consensus: list[Amount | None]


class NodeMetrics(TypedDict):
    """The honest nodes of a training without a server.

    Attributes:
        honest: their numbers.
        accuracy: for each of them, the mean of its last evaluations.
        worst, best, tenth, spread: over them; the 10th percentile, and the standard deviation.
        mean_model: accuracy of the mean of their models, which no node has.
        consensus: distance of the models, see `fedguard.contracts.NodesReport`; null if it is not finite.
        messages: number of vectors sent in total.
        abandoned: aggregates of honest nodes at which the rule could not run.
        links: (source, destination) of each pair of nodes of which the second ever receives messages from the first; the first
            `MOST`.
        traffic: bytes over each of the links, if they differ.
        backlog: seconds until the longest queue of messages is sent, if messages queue.
        malicious: the nodes that acted for the attack.
        curve: over the training.
    """

    honest: list[Count]
    accuracy: list[Share]
    worst: Share
    best: Share
    tenth: Share
    spread: Amount
    mean_model: Share
    consensus: Amount | None
    messages: Count
    abandoned: Count
    links: list[list[Count]]
    traffic: NotRequired[list[Count]]
    backlog: NotRequired[Amount]
    malicious: list[Count]
    curve: NodesCurve


def by_node(reports: Sequence[RoundReport], last: Sequence[RoundReport]) -> NodeMetrics | None:
    """The nodes in a record of a training, judged by the ``last`` reports; None with a server."""
    told = [report.nodes for report in reports if report.nodes is not None]
    evaluated = [one for one in told if one.honest]
    if not evaluated:
        return None
    end = [report.nodes for report in last if report.nodes is not None and report.nodes.honest]
    accuracy = [fmean(values) for values in zip(*(one.accuracy for one in end), strict=True)]
    found: NodeMetrics = {
        "honest": list(end[-1].honest),
        "accuracy": accuracy,
        "worst": min(accuracy),
        "best": max(accuracy),
        "tenth": float(np.quantile(accuracy, 0.1)),
        "spread": pstdev(accuracy),
        "mean_model": fmean(_require_value(one.mean_model) for one in end),
        "consensus": _finite(fmean(_require_value(one.consensus) for one in end)),
        "messages": told[-1].messages,
        "abandoned": sum(one.abandoned for one in told),
        "links": [list(link) for link in told[-1].links[:MOST]],
        "malicious": sorted({node for report in reports for node in report.malicious}),
        "curve": {
            "accuracy": [[round(value, 6) for value in one.accuracy] for one in evaluated],
            "worst": [min(one.accuracy) for one in evaluated],
            "best": [max(one.accuracy) for one in evaluated],
            "mean_model": [_require_value(one.mean_model) for one in evaluated],
            "consensus": [_finite(_require_value(one.consensus)) for one in evaluated],
        },
    }
    if told[-1].backlog is not None:
        found["backlog"] = told[-1].backlog
    if told[-1].traffic:
        found["traffic"] = list(told[-1].traffic[:MOST])
    return found


def _require_value(value: float | None) -> float:
    assert value is not None  # in evaluated rounds
    return value


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
