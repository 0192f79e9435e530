"""Metrics of one training: utility, worst class, curve, and events of its rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.aggregate import AggregateMetrics, summarize_aggregates
from fedguard.metrics.filtering import Filter, filtering
from fedguard.metrics.moments import Axes, SimulatedTime, axes, in_time
from fedguard.metrics.nodes import NodeMetrics, by_node
from fedguard.metrics.quantities import Amount, Count, Number, Share
from fedguard.metrics.returns import mean_return

if TYPE_CHECKING:
    from fedguard.contracts import Evaluation, RoundReport

#: Number of evaluations in the mean that is the final accuracy
FINAL_EVALUATIONS = 5


class Curve(Axes):
    """The evaluations, in order: lists of one length.

    None is a loss that is not finite or has no examples, and a backdoor success without a backdoor.

    Attributes:
        round: the evaluated rounds, from 1.
        accuracy, backdoor: on the test examples, and on those with the trigger.
        returns: in place of accuracies, the mean over the test episodes, if actors act.
        loss: in nats.
        moments: number of points on a grid in simulated time for which each evaluation counts, unless all count once.
    """

    round: list[Count]
    accuracy: NotRequired[list[Share]]
    returns: NotRequired[list[Number]]
    backdoor: list[Share | None]
    loss: list[float | None]
    moments: NotRequired[list[Count]]


class Ban(TypedDict):
    """A client that is excluded from all rounds after this one.

    Attributes:
        client, round: the client, and the round after which it was banned.
        malicious: whether it acted for the attack.
    """

    client: Count
    round: Count
    malicious: bool


class RoundCounts(TypedDict):
    """Numbers of rounds, and of updates in them.

    Attributes:
        total, updates: numbers of rounds, and of updates that the server received.
        not_finite, too_large: numbers of dropped updates.
        abandoned, why_abandoned: number of rounds that changed nothing, and the first reason.
        worst_hostile_share: largest share of malicious updates in a round.
        outvoted: number of rounds with more malicious rows than the rule assumed.
        silent: number of updates that did not arrive.
        bans: banned clients and the rounds of their bans, if there are any.
    """

    total: Count
    updates: Count
    not_finite: Count
    too_large: NotRequired[Count]
    abandoned: Count
    why_abandoned: str | None
    worst_hostile_share: Share
    outvoted: Count
    silent: Count
    bans: NotRequired[list[Ban]]


class Effect(TypedDict):
    """The rule's progress ``<R, mu> / |mu|^2`` under the attack, and under the most harmful of its siblings.

    Attributes:
        none, attack, sibling: medians over the evaluated rounds, if the malicious clients send the honest mean mu, what they
            sent, and what ``by`` would have sent.
        by: the sibling with the lowest progress.
    """

    none: Number
    attack: Number
    sibling: Number
    by: str


class Trajectory(TypedDict):
    """The metrics of a training in a record, from the reports of its rounds.

    Attributes:
        final_accuracy: mean over the last `FINAL_EVALUATIONS` evaluations, or grid points (`judge_last`); absent if actors act,
            which have returns.
        best_accuracy: the best one, a diagnostic.
        worst_class_accuracy: the smallest of the classes' means over the last evaluations; null without accuracies of classes.
        class_accuracy: by class; null for a class without test examples.
        perplexity: where each token has a label: the mean over the last evaluations; null if it is not finite.
        diverged: whether the last loss is not finite.
        curve: over the training.
        rounds: events of its rounds.
        aggregate: distance of the aggregates from the honest mean.
        time: only with simulated time.
        nodes: only without a server.
        filter: null for a rule that gives every update weight.
        attack_notes: numbers that the attack reported.
        attack_effect: null for an attack without siblings.
    """

    final_accuracy: NotRequired[Share]
    best_accuracy: NotRequired[Share]
    worst_class_accuracy: Share | None
    class_accuracy: list[Share | None]
    perplexity: NotRequired[Amount | None]
    diverged: bool
    curve: Curve
    rounds: RoundCounts
    aggregate: AggregateMetrics
    time: NotRequired[SimulatedTime]
    nodes: NotRequired[NodeMetrics]
    filter: Filter | None
    attack_notes: dict[str, float]
    attack_effect: NotRequired[Effect | None]


def summarize(reports: Sequence[RoundReport], steps: int = 0) -> Trajectory:
    """The trajectory, from round reports without their models.

    Args:
        steps: steps of environments behind each update; 0 without environments.
    """
    evaluated = [(report.round, report.evaluation) for report in reports if report.evaluation is not None]
    end = judge_last(reports)
    last = [report.evaluation for report in end if report.evaluation is not None]
    by_class = [_mean(values) for values in zip(*(evaluation.class_accuracy for evaluation in last), strict=True)]
    abandoned = [report.abandoned for report in reports if report.abandoned is not None]
    bans: list[Ban] = [
        {"client": client, "round": report.round, "malicious": client in report.malicious}
        for report in reports
        for client in report.banned
    ]
    fates = Counter[str](fate for report in reports for _, fate in report.fates)
    found: Trajectory = {
        "worst_class_accuracy": min((value for value in by_class if not math.isnan(value)), default=None),
        "class_accuracy": [None if math.isnan(value) else value for value in by_class],
        "diverged": not math.isfinite(last[-1].loss),
        "curve": _curve(reports, evaluated, steps),
        "rounds": {
            "total": len(reports),
            "updates": sum(len(report.clients) for report in reports),
            "not_finite": fates["not_finite"],
            "too_large": fates["too_large"],
            "abandoned": len(abandoned),
            "why_abandoned": abandoned[0] if abandoned else None,
            "worst_hostile_share": max(
                sum(client in report.malicious for client in report.clients) / max(len(report.clients), 1)
                for report in reports
            ),
            "outvoted": sum(map(_is_outvoted, reports)),
            "silent": fates["silent"],
        },
        "aggregate": summarize_aggregates([report.aggregate for report in reports if report.aggregate is not None]),
        "filter": filtering(reports),
        "attack_notes": dict(reports[-1].notes),
        "attack_effect": effect(reports),
    }
    if not last[-1].returns:
        found["final_accuracy"] = _mean([evaluation.accuracy for evaluation in last])
        found["best_accuracy"] = max(evaluation.accuracy for _, evaluation in evaluated)
    if perplexities := [one.perplexity for one in last if one.perplexity is not None]:
        found["perplexity"] = mean if math.isfinite(mean := _mean(perplexities)) else None
    if bans:
        found["rounds"]["bans"] = bans
    if (time := in_time(reports)) is not None:
        found["time"] = time
    if (nodes := by_node(reports, end)) is not None:
        found["nodes"] = nodes
    return found


def judge_last(reports: Sequence[RoundReport]) -> list[RoundReport]:
    """The reports by which a training is judged: the last `FINAL_EVALUATIONS` evaluated ones.

    On a grid in simulated time, it is for each of the last grid points the report with the model at that time. One report may
    count several times, if a long round followed it.
    """
    found: list[RoundReport] = []
    for report in reversed(reports):
        if report.evaluation is not None:
            found += [report] * min(report.moments, FINAL_EVALUATIONS - len(found))
    return found[::-1]


def _curve(reports: Sequence[RoundReport], evaluated: Sequence[tuple[int, Evaluation]], steps: int) -> Curve:
    found: Curve = {
        "round": [round for round, _ in evaluated],
        "backdoor": [report.backdoor for report in reports if report.evaluation is not None],
        "loss": [one.loss if math.isfinite(one.loss) and not one.returns else None for _, one in evaluated],
        **axes(reports, steps),  # type: ignore[typeddict-item]  # of accuracies and returns there is one
    }
    moments = [report.moments for report in reports if report.evaluation is not None]
    if set(moments) != {1}:
        found["moments"] = moments
    if evaluated[-1][1].returns:
        found["returns"] = [mean_return(evaluation) for _, evaluation in evaluated]
    else:
        found["accuracy"] = [evaluation.accuracy for _, evaluation in evaluated]
    return found


def effect(reports: Sequence[RoundReport]) -> Effect | None:
    """The effect in the reports; None for an attack without siblings."""
    rounds = [report.effect for report in reports if report.effect is not None]
    if not rounds:
        return None
    none, attack, *siblings = ((name, median(one[name] for one in rounds)) for name in rounds[0])
    by, sibling = min(siblings, key=lambda one: one[1])
    return {"none": none[1], "attack": attack[1], "sibling": sibling, "by": by}


def _is_outvoted(report: RoundReport) -> bool:
    """Whether more rows contained a malicious client than the rule assumed; with several aggregates, in any of them."""
    if report.nodes is not None:
        return report.nodes.outvoted > 0
    if report.moment is not None:
        return report.moment.outvoted > 0
    return sum(not report.malicious.isdisjoint(row) for row in report.behind) > report.assumed_f


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
