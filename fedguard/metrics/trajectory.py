"""The figures of one training: utility, worst class, curve, and what happened in its rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedguard.contracts import RoundReport

#: Evaluations whose mean is the final accuracy.
FINAL_EVALUATIONS = 5


def summarise(reports: Sequence[RoundReport]) -> dict[str, Any]:
    """What a record says of a training, from its round reports without their models.

    Returns:
        final_accuracy: mean of the last `FINAL_EVALUATIONS` evaluations; best_accuracy: the best one, a diagnostic;
        worst_class_accuracy: the smallest of the classes' means over the last evaluations;
        diverged: whether the last loss is not finite; curve; rounds.
    """
    evaluated = [(report.round, report.evaluation) for report in reports if report.evaluation is not None]
    last = [evaluation for _, evaluation in evaluated[-FINAL_EVALUATIONS:]]
    by_class = [_mean(values) for values in zip(*(evaluation.class_accuracy for evaluation in last), strict=True)]
    abandoned = [report.abandoned for report in reports if report.abandoned is not None]
    return {
        "final_accuracy": _mean([evaluation.accuracy for evaluation in last]),
        "best_accuracy": max(evaluation.accuracy for _, evaluation in evaluated),
        "worst_class_accuracy": min(value for value in by_class if not math.isnan(value)),
        "class_accuracy": [None if math.isnan(value) else value for value in by_class],
        "diverged": not math.isfinite(last[-1].loss),
        "curve": {
            "round": [round for round, _ in evaluated],
            "accuracy": [evaluation.accuracy for _, evaluation in evaluated],
            "loss": [evaluation.loss if math.isfinite(evaluation.loss) else None for _, evaluation in evaluated],
        },
        "rounds": {
            "total": len(reports),
            "updates": sum(report.received for report in reports),
            "not_finite": sum(len(report.not_finite) for report in reports),
            "abandoned": len(abandoned),
            "why_abandoned": abandoned[0] if abandoned else None,
            "worst_hostile_share": max(
                report.hostile / report.received if report.received else 0.0 for report in reports
            ),
            "outvoted": sum(report.hostile - len(report.not_finite) > report.told for report in reports),
        },
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
