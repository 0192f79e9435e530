"""The figures of a training without a server: how each node fares, and how far nodes are apart."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from fedguard.contracts import RoundReport

#: Links that a record holds: all of a complete graph of 64 nodes.
MOST = 4032


def by_node(reports: Sequence[RoundReport], last: int) -> dict[str, Any]:
    """What a record says of the nodes of a training; nothing of one with a server.

    Returns:
        nodes, with honest: their numbers; accuracy: of each of them, the mean of its ``last`` evaluations; over these nodes
        worst, best, tenth (the 10th percentile) and spread (standard deviation); mean_model: accuracy of the mean of their
        models, which nobody has; consensus: see `NodesReport`, both means of the last evaluations, too; messages: vectors
        sent in all; abandoned: aggregates of honest nodes at which the rule could not run; links: the first `MOST` of
        (source, destination); traffic: bytes over each of these, where they differ; backlog: see `NodesReport`, in the end;
        malicious: those who acted; curve: over the evaluated rounds, the accuracy of each honest node, worst, best,
        mean_model and consensus.
    """
    told = [report.nodes for report in reports if report.nodes is not None]
    evaluated = [one for one in told if one.honest]
    if not evaluated:
        return {}
    end = evaluated[-last:]
    accuracy = [fmean(values) for values in zip(*(one.accuracy for one in end), strict=True)]
    nodes = {
        "honest": list(end[-1].honest),
        "accuracy": accuracy,
        "worst": min(accuracy),
        "best": max(accuracy),
        "tenth": float(np.quantile(accuracy, 0.1)),
        "spread": pstdev(accuracy),
        "mean_model": fmean(_known(one.mean_model) for one in end),
        "consensus": _finite(fmean(_known(one.consensus) for one in end)),
        "messages": told[-1].messages,
        "abandoned": sum(one.abandoned for one in told),
        "links": [list(link) for link in told[-1].links[:MOST]],
        "malicious": sorted({node for report in reports for node in report.malicious}),
        "curve": {
            "accuracy": [[round(value, 6) for value in one.accuracy] for one in evaluated],
            "worst": [min(one.accuracy) for one in evaluated],
            "best": [max(one.accuracy) for one in evaluated],
            "mean_model": [_known(one.mean_model) for one in evaluated],
            "consensus": [_finite(_known(one.consensus)) for one in evaluated],
        },
    }
    if told[-1].backlog is not None:
        nodes["backlog"] = told[-1].backlog
    if told[-1].traffic:
        nodes["traffic"] = list(told[-1].traffic[:MOST])
    return {"nodes": nodes}


def _known(value: float | None) -> float:
    assert value is not None  # in evaluated rounds
    return value


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
