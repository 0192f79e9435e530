"""AsyncFilter (Kang and Li, Middleware 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, PositiveInt, RuleContext, Sight, State, WeightRule
from fedguard.defenses.aggregators.clusters import kmeans
from fedguard.defenses.aggregators.ties import merge_ties


@dataclass(frozen=True, kw_only=True)
class AsyncFilter(WeightRule):
    """Leaves out what lies far from other updates of its model.

    Updates that were trained from one model form a group, over all aggregates that they come in. With $M_g$ the mean of a
    group's updates so far, including those in this aggregate, $d_i = |x_i - M_g|$, and the score of $x_i$ is $d_i$ over the
    root mean square of the group's distances so far. k-means divides the scores of an aggregate into three clusters. The
    result is the mean of all updates outside the cluster with the highest score. Updates are compared as they were before the
    architecture scaled them for their age.

    The source scores a group within one aggregate, and only if it has three or more updates. Here earlier updates from the
    same model count too, so that a few updates at a time can be judged. The score of a group of one is 1.

    Args:
        kept: number of models, the latest ones, for which the mean is kept.
    """

    name = "asyncfilter"
    source = "Kang and Li, AsyncFilter: Detecting Poisoning Attacks in Asynchronous Federated Learning, Middleware 2024"
    needs = (Sight.EACH_UPDATE | Sight.TIMES,)
    by_blocks = False
    min_rows = (2, 1)
    breakdown = "f < n/2 of the updates from each model, if malicious ones lie farthest from their mean"
    cost = "O(n^2 d): one Gram matrix; one mean for each of the last models"
    grid: ClassVar = {"kept": (10, 50)}

    kept: PositiveInt = 50

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {name: value for name, value in context.state.items() if name.startswith("mean ")}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        scores = torch.ones(gram.n, dtype=torch.float64)
        for model, rows in _groups(context).items():
            distances, _, squares, count = self._distances(gram, context, model, rows)
            if count > 1 and squares > 0:
                scores[rows] = distances / (squares / count) ** 0.5
        # k-means would part scores that only rounding keeps apart, and then drop one of two equal updates
        scores = merge_ties(scores)
        if scores.max() == scores.min():  # all alike but for rounding
            return torch.full_like(scores, 1 / gram.n)
        labels = kmeans(scores[None, :, None], 3, context.rng.torch())[0][0]
        kept = (labels != labels[scores.argmax()]).double()
        return kept / kept.sum()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        state = dict(context.state)
        for model, rows in _groups(context).items():
            _, count, squares, total = self._distances(gram, context, model, rows)
            sent = gram.vectors[rows].double() / context.scale[rows, None]
            before = state.get(f"mean {model}", torch.zeros_like(aggregate)).double()
            state[f"mean {model}"] = ((count * before + sent.sum(0)) / total).to(aggregate.dtype)
            state[f"so far {model}"] = torch.tensor([total, squares], dtype=torch.float64)
        # One mean [d] per model: without a limit the state would grow with every aggregate
        models = sorted({int(name.rsplit(" ", 1)[1]) for name in state})[-self.kept :]
        return {name: value for name, value in state.items() if int(name.rsplit(" ", 1)[1]) in models}

    def _distances(
        self, gram: Gram, context: RuleContext, model: int, rows: Tensor
    ) -> tuple[Tensor, float, float, float]:
        """Distances of the updates from one model to the mean of their group.

        Returns:
            The distances, float64 ``[rows]``; the number of earlier updates; the sum of all squared distances so far; the
            number of updates so far.
        """
        # Earlier distances stay as they were measured: to measure them from the mean of now would take all earlier updates
        before, squares = context.state.get(f"so far {model}", torch.zeros(2)).tolist()
        total = before + len(rows)
        # The group of a model spans several aggregates, whose updates differ in age and so in the architecture's scale
        sent = gram.mix(torch.diag(1 / context.scale))
        mean = torch.zeros(sent.rows, dtype=torch.float64)
        mean[rows] = 1 / total
        if before:
            mean[sent.n + sent.anchors.index(f"mean {model}")] = before / total
        distances = sent.distances_to(mean)[rows]
        return distances, before, squares + float(distances.square().sum()), total


def _groups(context: RuleContext) -> dict[int, Tensor]:
    """The rows (int64 ``[.]``) of the updates, by the number of the model from which they were trained."""
    models = context.versions
    return {model: (models == model).nonzero()[:, 0] for model in sorted(set(models.tolist()))}
