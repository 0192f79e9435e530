"""Divide and conquer (Shejwalkar and Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, PositiveFloat, PositiveInt, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike, top_directions
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class DnC(WeightRule):
    """Drops the updates that stand out along the direction in which all vary the most, and averages the others.

    With $mu$ the mean of all and v the top right singular vector of the $x_i - mu$, the $c f$ updates with the largest
    scores $<v, x_i - mu>^2$ are dropped; $R(x)$ is the mean of the updates that pass in every iteration. The source draws a
    subset of the coordinates in each iteration, because the singular vectors of all coordinates would be too expensive. From
    the Gram matrix they cost little, so the default takes all coordinates and a single iteration.
    Scores add up over directions of equal variance, and updates that tie for the last places share them. If no update passes
    every iteration, the result is zero and the model stays as it is: no client is trusted instead.

    Args:
        filter_factor: c; $floor(c f)$ updates are dropped in each iteration. The source uses 1.
        sample: number of coordinates to draw in each iteration; None takes all.
        iterations: number of draws of coordinates; without effect if ``sample`` is None.
    """

    name = "dnc"
    source = "Shejwalkar and Houmansadr, Manipulating the Byzantine, NDSS 2021"
    needs = ROWS
    by_blocks = False
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix; with `sample` one of the drawn coordinates in each iteration"
    grid: ClassVar = {"filter_factor": (0.5, 1.0, 1.5)}

    filter_factor: PositiveFloat = 1.0
    sample: PositiveInt | None = None
    iterations: PositiveInt = 1

    def check(self, n: int, f: int) -> None:
        super().check(n, f)
        if self._count_removals(f) >= n:
            raise PreconditionError(
                f"dnc needs n > filter_factor * f, with filter_factor = {self.filter_factor:g} and f = {f}: more than "
                f"{self._count_removals(f)} updates; got n = {n}. Lower filter_factor or f."
            )

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        passed, kept = torch.ones(gram.n, dtype=torch.float64), gram.n - self._count_removals(context.f)
        for inner in self._views(gram, context):
            # The left singular vectors of n rows are eigenvectors of their Gram matrix: no decomposition of an [n, d] matrix
            outlying = top_directions(inner)[1].square().sum(1)  # the scores over their common lambda
            # Times `kept`, an update that passes has 1 and a tied one its share: the minimum intersects the iterations
            passed = torch.minimum(passed, kept * smallest_alike(outlying, kept))
        # Shares of ties may add up to less than 1; only where nothing passes is the result 0
        return passed / passed.sum() if bool(passed.any()) else passed

    def _count_removals(self, f: int) -> int:
        # A product such as 0.29 * 100 is rounded to just below the whole number that is meant
        return int(self.filter_factor * f + 1e-9)

    def _views(self, gram: Gram, context: RuleContext) -> list[Tensor]:
        """The inner products of the x_i - mu, on all coordinates or on the coordinates of each draw."""
        if self.sample is None:
            return [gram.about(gram.affine(torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)))]
        views = []
        for iteration in range(self.iterations):
            drawn = torch.randperm(gram.vectors.shape[1], generator=context.rng.child(iteration).torch())[: self.sample]
            rows = gram.vectors[:, drawn].double()
            # Centered before the product: the common part of close updates may be far longer than their differences
            rows = rows - rows.mean(0)
            views.append(rows @ rows.T)
        return views
