"""Centered clipping (Karimireddy et al., ICML 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts import ROWS, Gram, PositiveFloat, PositiveInt, RuleContext, State, WeightRule


@dataclass(frozen=True, kw_only=True)
class CenteredClipping(WeightRule):
    """Moves from the aggregate of the round before, each update pulling no further than a radius.

    $v <- v + (1/n) sum_i (x_i - v) min(1, tau / |x_i - v|)$, ``steps`` times, from the last round's v (at first 0).
    The source's proof needs worker momentum (``training.worker_momentum``), which keeps honest updates close together.

    Args:
        tau: clipping radius, in the units of the updates. The source leaves its choice open; None takes the median of
            the $|x_i - v|$, which follows the updates' scale and which fewer than $n/2$ malicious updates cannot inflate.
        steps: number of steps in a round.
    """

    name = "centered_clipping"
    source = "Karimireddy et al., Learning from History for Byzantine Robust Optimization, ICML 2021"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/10 in the source's proof; f < n/2 in practice"
    cost = "O(nd) for one step; O(n^2 d) for more: one Gram matrix"
    grid: ClassVar = {"tau": (None, 0.01, 0.1, 1.0, 10.0, 100.0)}

    tau: PositiveFloat | None = None
    steps: PositiveInt = 1

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return dict(context.state)

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        start = "center" if "center" in gram.anchors else "origin"
        center = gram.unit(start)
        for step in range(self.steps):
            # By name the first step costs one pass over the updates, without a Gram matrix
            distances = gram.distances_to(start if step == 0 else center)
            tau = distances.quantile(0.5) if self.tau is None else self.tau
            # 0/0 is an update at v under a radius of 0: it pulls nowhere, with any weight
            pull = (tau / distances).clamp(max=1).nan_to_num(nan=1.0) / gram.n
            center = center * (1 - pull.sum())
            center[: gram.n] += pull
        return center[:-1]

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        return {"center": aggregate}
