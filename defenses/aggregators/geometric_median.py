"""Geometric median by smoothed Weiszfeld steps (Pillutla et al., IEEE TSP 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, NonNegativeFloat, PositiveInt, RuleContext, WeightRule
from fedguard.defenses.aggregators.ties import TIE

Array = np.ndarray[Any, np.dtype[Any]]

#: Steps after which the search checks whether the median is one of the updates.
PATIENCE = 8

#: Inner products of float32 rows separate points if their distance exceeds this share of their lengths about the reference.
RESOLUTION = 2.0**-10


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(WeightRule):
    """The point with the smallest sum of distances to the updates (RFA).

    $R(x) = argmin_z sum_i |z - x_i|$, from $z = 0$ by $z <- sum_i w_i x_i / (sum_i w_i)$ with $w_i = 1 / max(nu, |z -
    x_i|)$. In Gram space a step costs $O(n^2)$, so the default runs until the gradient vanishes; the source stops after 3
    or 4 steps, since each one costs a round of secure aggregation there. If z coincides with k of the updates, Weiszfeld's
    step is undefined, and Vardi and Zhang's (PNAS 2000) replaces it: z is the median if the force of the others, the
    length of their sum of $(x_i - z) / |x_i - z|$, is at most k; else z takes the share $1 - k / force$ of the step.

    Args:
        steps: largest number of steps.
        nu: floor of the distances, in the units of the updates. The source needs one against division by zero. Here updates
            that coincide with z are recognized by a share of the lengths, at any scale of the updates, so none is needed.
    """

    name = "geometric_median"
    source = "Pillutla et al., Robust Aggregation for Federated Learning, IEEE Transactions on Signal Processing 2022"
    needs = ROWS
    min_rows = (2, 1)
    breakdown = "f < n/2"
    cost = "O(n^2 d): one Gram matrix"

    steps: PositiveInt = 200
    nu: NonNegativeFloat = 0.0

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        inner, n = gram.inner.numpy(), gram.n
        point, shares = gram.unit("origin").numpy(), np.zeros(n)
        for step in range(self.steps):
            near, shares, pull = _measure_pull(inner, n, point, self.nu)
            count = near.sum()
            # The pull adds up n unit vectors, so n is the largest that it can be
            settled = count == 0 and pull < 1e-6 * n
            if (settled or step == PATIENCE) and (resting := _resting_row(inner, n)) is not None:
                return torch.from_numpy(resting)
            if settled:
                break
            if pull <= count:
                shares = near / count
                break
            if count:
                # near / pull adds up to count / pull, the part of the step that stays behind at the update
                shares = (1 - count / pull) * shares + near / pull
            point = gram.affine(torch.from_numpy(shares)).numpy()
        return torch.from_numpy(shares)

    def kappa(self, n: int, f: int) -> float:
        """4 (1 + r)^2 with r = f / (n - 2f) (Allouah et al., AISTATS 2023)."""
        return 4 * (1 + f / (n - 2 * f)) ** 2


def _measure_pull(inner: Array, n: int, point: Array, nu: float) -> tuple[Array, Array, float]:
    """Which updates coincide with ``point``, the shares of the others, and the force with which the others pull."""
    towards = inner @ point
    here, lengths = max(float(point @ towards), 0.0), np.maximum(inner.diagonal()[:n], 0)  # rounding may leave less
    distances = np.sqrt(np.maximum(lengths - 2 * towards[:n] + here, 0))
    near = distances <= RESOLUTION * np.sqrt(lengths + here)
    closeness = np.divide(1, np.maximum(distances, nu), out=np.zeros(n), where=~near)
    total = closeness.sum()
    if total == 0:
        return near, closeness, 0.0
    shares = closeness / total
    # A difference of affine weights adds up to 0, so the reference point of `inner` drops out of its length
    moved = np.append(shares, np.zeros(len(inner) - n)) - point
    moved[-1] -= moved.sum()
    return near, shares, float(total * np.sqrt(max(moved @ inner @ moved, 0)))


def _resting_row(inner: Array, n: int) -> Array | None:
    """The weights of the update that is the median, or None: Weiszfeld's steps converge only slowly to an update.

    Only the update with the smallest sum of distances to all can be the median, since the sum is convex. If different updates
    tie for the smallest sum, their mean is a median as well. Between two equal halves every point is a median: the steps would
    end at one that depends on where they begin; the mean does not.
    """
    lengths = inner.diagonal()[:n]
    distances = np.sqrt(np.maximum(lengths[:, None] + lengths - 2 * inner[:n, :n], 0))
    row = np.zeros(len(inner))
    sums = distances.sum(1)
    first = int(sums.argmin())
    row[first] = 1
    near, _, pull = _measure_pull(inner, n, row, 0.0)
    if not pull <= near.sum() * (1 + TIE):
        return None
    near |= sums <= sums[first] * (1 + TIE)
    weights: Array = near / near.sum()
    return weights
