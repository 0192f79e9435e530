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
    group's updates so far, this aggregate's among them, $d_i = |x_i - M_g|$, and the score of $x_i$ is $d_i$ over the root
    mean square of the group's distances so far. k-means parts the scores of an aggregate into three; the mean of all but
    those of the highest is the result. Updates are compared as they were before the architecture scaled them for their age.

    The source takes the scores of a group in one aggregate alone, and only where it has three or more: here those of
    the same model that came before count with them, so that few at a time can be judged. A group of one tells nothing: its
    score is 1.

    Args:
        kept: for how many models, the latest, the mean is kept.
    """

    name = "asyncfilter"
    source = "Kang and Li, AsyncFilter: Detecting Poisoning Attacks in Asynchronous Federated Learning, Middleware 2024"
    needs = (Sight.EACH_UPDATE | Sight.TIMES,)
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
        models = sorted({int(name.rsplit(" ", 1)[1]) for name in state})[-self.kept :]
        return {name: value for name, value in state.items() if int(name.rsplit(" ", 1)[1]) in models}

    def _distances(
        self, gram: Gram, context: RuleContext, model: int, rows: Tensor
    ) -> tuple[Tensor, float, float, float]:
        """Of the updates from one model, float64 ``[rows]``: how far each lies from the mean of its group.

        Returns:
            The distances; how many updates came before; the sum of all squared distances so far; how many there are now.
        """
        before, squares = context.state.get(f"so far {model}", torch.zeros(2)).tolist()
        total = before + len(rows)
        sent = gram.mix(torch.diag(1 / context.scale))
        mean = torch.zeros(sent.rows, dtype=torch.float64)
        mean[rows] = 1 / total
        if before:
            mean[sent.n + sent.anchors.index(f"mean {model}")] = before / total
        distances = sent.distances_to(mean)[rows]
        return distances, before, squares + float(distances.square().sum()), total


def _groups(context: RuleContext) -> dict[int, Tensor]:
    """By the number of the model that they were trained from, int64 ``[.]``: the rows of the updates."""
    models = context.versions
    return {model: (models == model).nonzero()[:, 0] for model in sorted(set(models.tolist()))}
