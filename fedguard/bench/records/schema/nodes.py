"""What a record tells of nodes without a server."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from fedguard.bench.records.schema.types import Amount, Count, Share


class NodesCurve(TypedDict):
    """Over the evaluations: the worst and the best node, the mean of the models, and how far these are apart.

    Attributes:
        accuracy: of each honest node, a list for each evaluation.
        worst, best, mean_model: accuracies.
        consensus: null where it is not finite.
    """

    accuracy: list[list[Share]]
    worst: list[Share]
    best: list[Share]
    mean_model: list[Share]
    consensus: list[Amount | None]


class Nodes(TypedDict):
    """The honest nodes of a training without a server; see `fedguard.metrics.nodes.by_node`.

    Attributes:
        honest: their numbers.
        accuracy: of each of them.
        worst, best, tenth, spread: over them.
        mean_model: of the mean of their models, which nobody has.
        consensus: how far the models are apart; null where that is not finite.
        messages: vectors sent in all.
        abandoned: aggregates at which the rule could not run.
        links: (source, destination), of each pair of nodes of which the second ever hears the first.
        traffic: bytes over each of the links, where they differ.
        backlog: seconds that the longest queue of messages still takes to be sent, where any queue.
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
