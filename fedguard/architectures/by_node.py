"""Evaluation of nodes with a model each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.contracts import Evaluation, NodesReport, RoundReport, Setup


def by_node(
    setup: Setup, clients: Clients, models: Tensor, honest: tuple[int, ...], report: RoundReport
) -> RoundReport:
    """The report with the metrics of the honest nodes, and their means as its evaluation and backdoor.

    Args:
        models: float32 ``[h, d]``: models of the honest nodes.
    """
    center, planted = models.mean(0), report.planted
    with setup.stopwatch.stage("evaluation"):
        evaluations = [clients.local.evaluate(model) for model in models]
        of_mean = clients.local.evaluate(center).accuracy
        backdoor = [setup.task.backdoor_success(model, *planted) for model in models] if planted else []
    nodes = replace(
        report.nodes or NodesReport(0),
        honest=honest,
        accuracy=tuple(one.accuracy for one in evaluations),
        mean_model=of_mean,
        consensus=float((models - center).double().square().sum(1).mean().sqrt()),
    )
    return replace(report, evaluation=_mean_of(evaluations), backdoor=fmean(backdoor) if planted else None, nodes=nodes)


def _mean_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Mean of the nodes' evaluations: of each class, of each test episode, and of their perplexities."""
    by_class = tuple(map(fmean, zip(*(one.class_accuracy for one in evaluations), strict=True)))
    returns = tuple(map(fmean, zip(*(one.returns for one in evaluations), strict=True)))
    loss, accuracy = fmean(one.loss for one in evaluations), fmean(one.accuracy for one in evaluations)
    surprised = [one.perplexity for one in evaluations if one.perplexity is not None]
    return Evaluation(loss, accuracy, by_class, returns, perplexity=fmean(surprised) if surprised else None)
