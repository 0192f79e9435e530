"""Evaluation in simulated time: when a training ends, and at which times its model is evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fedguard.config.sections import EvaluationSection
from fedguard.contracts import RoundReport
from fedguard.errors import ConfigError


def as_of(reports: Iterable[RoundReport], wanted: EvaluationSection) -> Iterator[RoundReport]:
    """The reports of the rounds that ended by ``wanted.until``, with the evaluations that count.

    A round's model is current from the end of its round to the end of the next round, the last one up to the horizon. It
    counts at each multiple of ``wanted.seconds`` in between, and at the horizon; without ``seconds``, once in every
    ``wanted.every``-th round.

    Args:
        reports: of all rounds, each evaluated.

    Raises:
        ConfigError: no round ended by the horizon, or the architecture has no simulated time.
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
            yield _count_moments(held, _moments(held, end, wanted))
        held = report
    if held is not None:
        yield _count_moments(held, _moments_to_the_end(held, wanted))


def _end(report: RoundReport) -> float:
    if report.moment is None:
        raise ConfigError("evaluation: the architecture tells no simulated time. Leave out seconds and until.")
    return report.moment.seconds


def _moments(report: RoundReport, end: float, wanted: EvaluationSection) -> int:
    """Number of evaluation times of a round's model, if the next round ended at ``end``."""
    if wanted.seconds is None:
        return int(report.round % wanted.every == 0)
    return _reach(end, wanted.seconds) - _reach(_end(report), wanted.seconds)


def _moments_to_the_end(report: RoundReport, wanted: EvaluationSection) -> int:
    """The same for the last round; without a horizon, the training is over when it ends, and that is one moment."""
    if wanted.seconds is None or wanted.until is None:
        return 1
    last = _reach(wanted.until, wanted.seconds)
    if math.isclose((last - 1) * wanted.seconds, wanted.until):  # one moment, not two, for being rounded
        last -= 1
    return max(1, last + 1 - _reach(_end(report), wanted.seconds))


def _reach(moment: float, step: float) -> int:
    """The smallest k >= 1 for which ``k * step`` is not before the moment."""
    k = max(1, math.ceil(moment / step))
    if k > 1 and (k - 1) * step >= moment:  # the quotient is rounded
        return k - 1
    return k + (k * step < moment)


def _count_moments(report: RoundReport, moments: int) -> RoundReport:
    return replace(report, moments=moments) if moments else _drop_evaluation(report)


def _drop_evaluation(report: RoundReport) -> RoundReport:
    nodes = report.nodes and replace(report.nodes, honest=(), accuracy=(), mean_model=None, consensus=None)
    return replace(
        report,
        evaluation=None,
        backdoor=None,
        aggregate=None,
        effect=None,
        nodes=nodes,
    )
