"""SPEAR (Dimitrov et al., NeurIPS 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import first_relu, inputs
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, PositiveInt, Reconstruction
from fedguard.errors import PreconditionError

#: Sets of rows tried at once, and the share of the largest singular value up to which a singular value is rounding.
SETS, ROUNDING = 2048, 1e-6


@dataclass(frozen=True, kw_only=True)
class Spear(InferenceAttack):
    """Takes the first layer's gradient apart into the inputs, by the zeros that ReLU leaves in it.

    $[dL/dW | dL/db] = dL/dZ^T [X | 1]$ has rank B, so it is $U D$ with U orthonormal ``[o, B]``; then $dL/dZ^T = U Q$ and
    $[X | 1] = Q^-1 D$ for one unknown Q. A column q of Q is orthogonal to the rows of U of all neurons that its example
    does not activate. So B - 1 random rows are all inactive for one of the examples with probability of about $B / 2^(B -
    1)$. Then q is their kernel, recognized by the many other zeros in U q. The B independent directions with the most zeros
    form Q, and its scale follows from the column of ones. The neurons that the recovered inputs leave inactive in the model
    give further guesses; if they match the zeros, the search ends. The result is exact; the work more than doubles with
    each further example.

    It needs a network that begins with a dense layer with bias and a ReLU, with $B <= min(o, i)$.

    Args:
        samples: maximum number of sets of rows; after these the attack returns its best result.
    """

    name = "spear"
    source = "Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024"
    goal = "reconstruction"
    needs = ONE_VECTOR

    samples: PositiveInt = 200_000

    def check(self, view: InferenceView) -> None:
        first, _ = first_relu(view)
        most = min(first.module.weight.shape)
        if view.count > most:
            raise PreconditionError(
                f"spear: expected no more examples than the first layer has neurons or inputs, {most}; got {view.count}."
            )

    def infer(self, view: InferenceView) -> Reconstruction:
        self.check(view)
        first, _ = first_relu(view)
        gradient, model = view.gradient.double(), view.model.double()
        used = first.weight(gradient).any(1)
        weight, bias = first.weight(model)[used], first.bias(model)[used]
        left, sizes, right = torch.linalg.svd(
            torch.cat([first.weight(gradient)[used], first.bias(gradient)[used, None]], 1), full_matrices=False
        )
        rank = min(view.count, int((sizes > ROUNDING * sizes.max()).sum())) if len(sizes) else 0
        if rank == 0:
            return Reconstruction(inputs(view, first.weight(gradient)[:0]))
        left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
        unit = left / left.norm(dim=1, keepdim=True)
        # A row's rounding error, as a share of its length, is amplified by the condition number.
        tolerance = min(1e-3, torch.finfo(torch.float32).eps * float(sizes[0] / sizes[-1]))
        generator = view.rng.child("spear").torch()
        basis, x = torch.eye(rank, dtype=left.dtype), first.weight(gradient)[:0]
        silent = torch.zeros(0, len(unit), dtype=torch.bool)
        for _ in range(-(-self.samples // SETS)):
            sets = torch.cat([silent, guesses(unit, generator, tolerance)])
            basis = sparsest(torch.cat([kernels(sets, unit), basis]), unit, tolerance)
            rows = torch.linalg.solve(basis.T, sizes[:, None] * right)  # [X | 1], each row with a factor
            x = rows[:, :-1] / rows[:, -1:]
            silent = x @ weight.T + bias <= 0
            if (silent == zeros(basis, unit, tolerance)).double().mean() > 0.999:
                break
        return Reconstruction(inputs(view, x[x.isfinite().all(1)]))


def zeros(directions: Tensor, unit: Tensor, tolerance: float) -> Tensor:
    """bool ``[m, k]``: whether the directions ``[m, r]`` are orthogonal to the rows of ``unit`` (``[k, r]``, of length 1)."""
    return (directions @ unit.T).abs() <= tolerance


def guesses(unit: Tensor, generator: torch.Generator, tolerance: float) -> Tensor:
    """bool ``[m, k]``: sets of rows orthogonal to some direction, each larger than the r - 1 rows that it was made from."""
    k, rank = unit.shape
    picks = torch.rand(SETS, k, generator=generator).topk(rank - 1, dim=1).indices
    found = zeros(torch.linalg.svd(unit[picks])[2][:, -1], unit, 10 * tolerance)
    return found[found.sum(1) > rank]


def kernels(sets: Tensor, unit: Tensor) -> Tensor:
    """float64 ``[m, r]``: the direction closest to orthogonal to each set of rows, bool ``[m, k]``; rounding averages out."""
    found: Tensor = torch.linalg.eigh(torch.einsum("mk,ki,kj->mij", sets.double(), unit, unit))[1][:, :, 0]
    return found


def sparsest(candidates: Tensor, unit: Tensor, tolerance: float) -> Tensor:
    """float64 ``[r, r]``: greedily, the linearly independent directions with the most zeros; of equal ones the first."""
    order = zeros(candidates, unit, tolerance).sum(1).argsort(descending=True, stable=True)
    chosen: list[Tensor] = []
    rest = candidates[order]  # less the projection on the chosen ones
    for _ in range(unit.shape[1]):
        free = rest.norm(dim=1)
        best = int((free > min(1e-3, float(free.max()) / 2)).int().argmax())
        chosen.append(candidates[order[best]])
        new = rest[best] / rest[best].norm()
        rest = rest - (rest @ new)[:, None] * new
    return torch.stack(chosen)
