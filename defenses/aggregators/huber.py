"""Huber loss minimization (Zhao et al., AAAI 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, PositiveFloat, PositiveInt, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import smallest


@dataclass(frozen=True, kw_only=True)
class Huber(WeightRule):
    """The point with the smallest sum of Huber losses: a mean for what is near, a geometric median for what is far.

    $R(x) = argmin_z sum_i phi(|z - x_i|)$, $phi(u) = u^2 / 2$ up to the threshold T and $T u - T^2 / 2$ beyond, by
    $z <- sum_i w_i x_i / (sum_i w_i)$ with $w_i = min(1, T / |z - x_i|)$ until z converges. The loss is convex, so the
    minimum does not depend on the start: the center of the smallest ball around an update that holds a majority, or the mean
    of tied centers. The source also weights clients by their numbers of examples; here all clients count alike, since these
    numbers are claims.

    Args:
        threshold: T, in the units of the updates. The source derives it from the honest clients' spread, which is unknown in
            practice. None takes the radius of the smallest ball around an update that holds a majority: it follows the
            scale of the updates, and fewer than $n/2$ malicious updates cannot inflate it.
        steps: largest number of steps.
    """

    name = "huber"
    source = "Zhao et al., A Huber Loss Minimization Approach to Byzantine Robust Federated Learning, AAAI 2024"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"
    grid: ClassVar = {"threshold": (None, 0.01, 0.1, 1.0, 10.0)}

    threshold: PositiveFloat | None = None
    steps: PositiveInt = 1000

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        inner = gram.inner[: gram.n, : gram.n]
        distances = gram.distances_squared().sqrt()
        # Column 0 is the update itself, so column n // 2 is the radius around it that holds a majority
        radii = distances.sort(dim=1).values[:, gram.n // 2]
        threshold = float(radii.min()) if self.threshold is None else self.threshold
        start, shares = smallest(radii).double(), torch.zeros(gram.n, dtype=torch.float64)
        away = _distances_to(inner, start / start.sum())
        for _ in range(self.steps):
            # At an update itself this is infinite or 0/0: there the loss is quadratic, with weight 1
            closeness = (threshold / away).clamp(max=1).nan_to_num(nan=1.0)
            previous, shares = shares, closeness / closeness.sum()
            if (shares - previous).abs().max() < 1e-10:
                break
            away = _distances_to(inner, shares)
        return shares


def _distances_to(inner: Tensor, shares: Tensor) -> Tensor:
    """float64 ``[n]``: distances of the rows with the ``inner`` products from their mean weighted by ``shares``."""
    towards = inner @ shares
    return (inner.diagonal() - 2 * towards + shares @ towards).clamp(min=0).sqrt()
