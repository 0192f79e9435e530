"""A training that is judged by simulated time: until when it lasts, and at which moments its model counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fedguard.config.sections import EvaluationSection
from fedguard.contracts import RoundReport
from fedguard.errors import ConfigError


def as_of(reports: Iterable[RoundReport], wanted: EvaluationSection) -> Iterator[RoundReport]:
    """The reports of the rounds that ended by ``wanted.until``, with the evaluations that count.

    A round's model stands from its end to the end of the next one. It counts where a multiple of ``wanted.seconds`` lies in
    between, or the horizon; without ``seconds``, in every ``wanted.every``-th round.

    Args:
        reports: of all rounds, each evaluated.

    Raises:
        ConfigError: no round ended by the horizon, or the architecture tells no times.
    """
    until = math.inf if wanted.until is None else wanted.until
    held: RoundReport | None = None
    for report in reports:
        end = _end(report)
        if end > until:
            if held is None:
                raise ConfigError(
                    f"evaluation.until: expected a moment after the first round, which ends after {end:.4g} simulated seconds; "
                    f"got {until:g}."
                )
            break
        if held is not None:
            yield held if _counts(held, end, wanted) else _drop_evaluation(held)
        held = report
    if held is not None:
        yield held


def _end(report: RoundReport) -> float:
    if report.moment is None:
        raise ConfigError("evaluation: the architecture tells no simulated time. Leave out seconds and until.")
    return report.moment.seconds


def _counts(report: RoundReport, end: float, wanted: EvaluationSection) -> bool:
    """Whether the model of a round counts that another one ended at ``end``."""
    if wanted.seconds is None:
        return report.round % wanted.every == 0
    return math.ceil(_end(report) / wanted.seconds) * wanted.seconds < end


def _drop_evaluation(report: RoundReport) -> RoundReport:
    nodes = report.nodes and replace(report.nodes, honest=(), accuracy=(), mean_model=None, consensus=None)
    return replace(
        report,
        evaluation=None,
        backdoor=None,
        kappa=None,
        cosine=None,
        malicious_length=None,
        effect=None,
        nodes=nodes,
    )
