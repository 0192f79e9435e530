"""The figures of one training: utility, worst class, curve, and what happened in its rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from fedguard.contracts import RoundReport
from fedguard.metrics.moments import axes, in_time
from fedguard.metrics.nodes import by_node

#: Evaluations whose mean is the final accuracy.
FINAL_EVALUATIONS = 5


def summarise(reports: Sequence[RoundReport]) -> dict[str, Any]:
    """What a record says of a training, from its round reports without their models.

    Returns:
        final_accuracy: mean of the last `FINAL_EVALUATIONS` evaluations; best_accuracy: the best one, a diagnostic;
        worst_class_accuracy: the smallest of the classes' means over the last evaluations;
        diverged: whether the last loss is not finite; curve; rounds;
        aggregate: the largest kappa that a round's aggregate showed, its mean cosine with the honest mean, and the mean
        length of the malicious updates in units of the honest ones';
        time: see `in_time`, where there is simulated time; nodes: see `by_node`, where there is no server;
        filter: see `filtering`; attack_effect: see `effect`.
    """
    evaluated = [(report.round, report.evaluation) for report in reports if report.evaluation is not None]
    last = [evaluation for _, evaluation in evaluated[-FINAL_EVALUATIONS:]]
    by_class = [_mean(values) for values in zip(*(evaluation.class_accuracy for evaluation in last), strict=True)]
    abandoned = [report.abandoned for report in reports if report.abandoned is not None]
    bans = [
        {"client": client, "round": report.round, "malicious": client in report.malicious}
        for report in reports
        for client in report.banned
    ]
    return {
        "final_accuracy": _mean([evaluation.accuracy for evaluation in last]),
        "best_accuracy": max(evaluation.accuracy for _, evaluation in evaluated),
        "worst_class_accuracy": min(value for value in by_class if not math.isnan(value)),
        "class_accuracy": [None if math.isnan(value) else value for value in by_class],
        "diverged": not math.isfinite(last[-1].loss),
        "curve": {
            "round": [round for round, _ in evaluated],
            "accuracy": [evaluation.accuracy for _, evaluation in evaluated],
            "backdoor": [report.backdoor for report in reports if report.evaluation is not None],
            "loss": [evaluation.loss if math.isfinite(evaluation.loss) else None for _, evaluation in evaluated],
            **axes(reports),
        },
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
            "outvoted": sum(map(_outvoted, reports)),
            "silent": sum(len(report.silent) for report in reports),
            **({"bans": bans} if bans else {}),
        },
        "aggregate": {
            "kappa": _largest([report.kappa for report in reports]),
            "cosine": _average([report.cosine for report in reports]),
            "hostile_length": _average([report.malicious_length for report in reports]),
        },
        **in_time(reports),
        **by_node(reports, FINAL_EVALUATIONS),
        "filter": filtering(reports),
        "attack_notes": reports[-1].notes,
        "attack_effect": effect(reports),
    }


def filtering(reports: Sequence[RoundReport]) -> dict[str, Any] | None:
    """How well a rule that gives some updates no weight finds the malicious ones; None for rules without weights.

    Returns:
        precision: malicious among the excluded; recall: excluded among the malicious (None where the count is 0);
        honest_excluded: share of the honest updates that were excluded; most_excluded: the honest client that was excluded
        most often, and the share of its rounds in which it was.
    """
    judged = [report for report in reports if report.excluded is not None]
    if not judged:
        return None
    caught = removed = malicious = honest = lost = 0
    seen: Counter[int] = Counter()
    excluded: Counter[int] = Counter()
    for report in judged:
        out = set(report.excluded or ())
        here = set(report.clients) - set(report.not_finite)
        good = here - report.malicious
        caught, removed = caught + len(out & report.malicious), removed + len(out)
        malicious, honest, lost = malicious + len(here & report.malicious), honest + len(good), lost + len(out & good)
        seen.update(good)
        excluded.update(out & good)
    worst = max(seen, key=lambda client: (excluded[client] / seen[client], -client), default=None)
    return {
        "precision": caught / removed if removed else None,
        "recall": caught / malicious if malicious else None,
        "honest_excluded": lost / honest if honest else None,
        "most_excluded": None if worst is None else {"client": worst, "share": excluded[worst] / seen[worst]},
    }


def effect(reports: Sequence[RoundReport]) -> dict[str, Any] | None:
    """What the attack left of the rule's progress ``<R, mu> / |mu|^2``, beside the most harmful of its siblings.

    Returns:
        medians over the evaluated rounds: none: with the malicious clients sending mu, attack: with what they sent,
            sibling: with
        what ``by`` would have sent, which is the sibling that leaves the least. None for an attack without siblings.
    """
    rounds = [report.effect for report in reports if report.effect is not None]
    if not rounds:
        return None
    none, attack, *siblings = ((name, median(one[name] for one in rounds)) for name in rounds[0])
    by, sibling = min(siblings, key=lambda one: one[1])
    return {"none": none[1], "attack": attack[1], "sibling": sibling, "by": by}


def durability(reports: Sequence[RoundReport], last_attack: int | None) -> dict[str, Any] | None:
    """How long a backdoor outlives the attack; None without a backdoor, or where the attack goes on to the end.

    Returns:
        rounds: after the last attack until the success rate was first below one half; ``survived`` if it never was.
    """
    curve = [(report.round, report.backdoor) for report in reports if report.backdoor is not None]
    if not curve or last_attack is None or last_attack >= curve[-1][0]:
        return None
    after = [(round, success) for round, success in curve if round >= last_attack]
    fallen = next((round for round, success in after if success < 0.5), None)
    end = after[-1][0] if fallen is None else fallen
    return {"rounds": end - last_attack, "survived": fallen is None}


def _outvoted(report: RoundReport) -> bool:
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
