"""The figures of one training: utility, worst class, curve, and what happened in its rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NotRequired

from typing_extensions import TypedDict

from fedguard.metrics.filtering import Filter, filtering
from fedguard.metrics.moments import Axes, SimulatedTime, axes, in_time
from fedguard.metrics.nodes import NodeMetrics, by_node
from fedguard.metrics.quantities import Count, Number, Share
from fedguard.metrics.returns import mean_return

if TYPE_CHECKING:
    from fedguard.contracts import Evaluation, RoundReport

#: Evaluations whose mean is the final accuracy.
FINAL_EVALUATIONS = 5


class Curve(Axes):
    """What was evaluated, in order: lists of one length.

    None is a loss that is not finite or of no examples, and the success of no backdoor.

    Attributes:
        round: the rounds that were evaluated, from 1.
        accuracy, backdoor: of the test examples, and of those with the trigger.
        returns: in place of accuracies, the mean over the test episodes, where actors act.
        loss: in nats.
        moments: at how many moments of a grid in simulated time each of them counts, where any does not count once.
    """

    round: list[Count]
    accuracy: NotRequired[list[Share]]
    returns: NotRequired[list[Number]]
    backdoor: list[Share | None]
    loss: list[float | None]
    moments: NotRequired[list[Count]]


class Ban(TypedDict):
    """A client that has no part in the rounds after this one.

    Attributes:
        client, round: who, and after which round.
        malicious: whether it acted for the attack.
    """

    client: Count
    round: Count
    malicious: bool


class RoundCounts(TypedDict):
    """Numbers of rounds, and of updates in them.

    Attributes:
        total, updates: rounds, and updates that the server got.
        not_finite, too_large: updates that were dropped.
        abandoned, why_abandoned: rounds that changed nothing, and the first reason.
        worst_hostile_share: the largest share of malicious updates in a round.
        outvoted: rounds with more malicious rows than the rule reckons with.
        silent: updates that did not come.
        bans: who was banned, and in which round, where anybody was.
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


class AggregateMetrics(TypedDict):
    """The largest kappa that a round showed; means of the cosine with the honest mean and of the malicious updates' length.

    Attributes:
        kappa: the largest that a round showed.
        cosine: of the aggregate with the honest mean.
        hostile_length: of the malicious updates, in lengths of the honest ones.
    """

    kappa: Number | None
    cosine: Number | None
    hostile_length: Number | None


class Effect(TypedDict):
    """What the attack left of the rule's progress ``<R, mu> / |mu|^2``, beside the most harmful of its siblings.

    Attributes:
        none, attack, sibling: medians over the evaluated rounds, with the malicious clients sending the honest mean mu, what
            they sent, and what ``by`` would have sent.
        by: the sibling that leaves the least.
    """

    none: Number
    attack: Number
    sibling: Number
    by: str


class Trajectory(TypedDict):
    """What a record says of a training from the reports of its rounds.

    Attributes:
        final_accuracy: mean at the last `FINAL_EVALUATIONS` evaluations, or moments (`judge_last`); absent where actors
            act, who have returns.
        best_accuracy: the best one, a diagnostic.
        worst_class_accuracy: the smallest of the classes' means over the last evaluations; null where nobody told of classes.
        class_accuracy: by class; null for one without test examples.
        diverged: whether the last loss is not finite.
        curve: over the training.
        rounds: what happened in them.
        aggregate: how near the aggregates came to the honest mean.
        time: where there is simulated time.
        nodes: where there is no server.
        filter: null for a rule that gives every update weight.
        attack_notes: numbers that the attack noted.
        attack_effect: null for an attack without siblings.
    """

    final_accuracy: NotRequired[Share]
    best_accuracy: NotRequired[Share]
    worst_class_accuracy: Share | None
    class_accuracy: list[Share | None]
    diverged: bool
    curve: Curve
    rounds: RoundCounts
    aggregate: AggregateMetrics
    time: NotRequired[SimulatedTime]
    nodes: NotRequired[NodeMetrics]
    filter: Filter | None
    attack_notes: dict[str, float]
    attack_effect: NotRequired[Effect | None]


def summarise(reports: Sequence[RoundReport], steps: int = 0) -> Trajectory:
    """The trajectory, from round reports without their models.

    Args:
        steps: of environments behind each update; 0 where nobody acts.
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
    found: Trajectory = {
        "worst_class_accuracy": min((value for value in by_class if not math.isnan(value)), default=None),
        "class_accuracy": [None if math.isnan(value) else value for value in by_class],
        "diverged": not math.isfinite(last[-1].loss),
        "curve": _curve(reports, evaluated, steps),
        "rounds": {
            "total": len(reports),
            "updates": sum(report.received for report in reports),
            "not_finite": sum(len(report.not_finite) - len(report.too_large) for report in reports),
            "too_large": sum(len(report.too_large) for report in reports),
            "abandoned": len(abandoned),
            "why_abandoned": abandoned[0] if abandoned else None,
            "worst_hostile_share": max(
                sum(client in report.malicious for client in report.clients) / max(report.received, 1)
                for report in reports
            ),
            "outvoted": sum(map(_is_outvoted, reports)),
            "silent": sum(len(report.silent) for report in reports),
        },
        "aggregate": {
            "kappa": _largest([report.kappa for report in reports]),
            "cosine": _average([report.cosine for report in reports]),
            "hostile_length": _average([report.malicious_length for report in reports]),
        },
        "filter": filtering(reports),
        "attack_notes": dict(reports[-1].notes),
        "attack_effect": effect(reports),
    }
    if not last[-1].returns:
        found["final_accuracy"] = _mean([evaluation.accuracy for evaluation in last])
        found["best_accuracy"] = max(evaluation.accuracy for _, evaluation in evaluated)
    if bans:
        found["rounds"]["bans"] = bans
    if (time := in_time(reports)) is not None:
        found["time"] = time
    if (nodes := by_node(reports, end)) is not None:
        found["nodes"] = nodes
    return found


def judge_last(reports: Sequence[RoundReport]) -> list[RoundReport]:
    """What a training is judged by: the last `FINAL_EVALUATIONS` evaluated reports.

    Where it is judged at moments of simulated time, it is the report whose model stands then, for each of the last moments: one
    report several times, if its round was followed by a long one.
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
    """What the rounds say of it; None for an attack without siblings."""
    rounds = [report.effect for report in reports if report.effect is not None]
    if not rounds:
        return None
    none, attack, *siblings = ((name, median(one[name] for one in rounds)) for name in rounds[0])
    by, sibling = min(siblings, key=lambda one: one[1])
    return {"none": none[1], "attack": attack[1], "sibling": sibling, "by": by}


def _is_outvoted(report: RoundReport) -> bool:
    """Whether a malicious client had a part in more rows than the rule reckoned with; of several aggregates, in any."""
    if report.nodes is not None:
        return report.nodes.outvoted > 0
    if report.moment is not None:
        return report.moment.outvoted > 0
    return sum(not report.malicious.isdisjoint(row) for row in report.behind) > report.told


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return _mean(known) if known else None
