"""Gradient descent with many restarts in one batch: each row of the variables ``[R, n]`` has its own loss.

Rows are independent, so a batch of restarts gives the same results as single restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

#: ``z [R, n] -> (loss [R], match [R])``: the objective, and its part that selects among iterates.
Objective = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass
class BestIterate:
    """The iterate with the least ``match`` so far, in each row."""

    z: Tensor
    match: Tensor

    @classmethod
    def of(cls, start: Tensor) -> BestIterate:
        return cls(start.clone(), start.new_full((len(start),), torch.inf))

    def see(self, z: Tensor, match: Tensor) -> None:
        better = match < self.match  # never true of nan
        self.z[better], self.match[better] = z[better], match[better]

    @property
    def winner(self) -> Tensor:
        """``[n]``: the iterate of the row with the best match."""
        return self.z[self.match.argmin()]


def evaluate_objective(objective: Objective, z: Tensor, best: BestIterate) -> tuple[Tensor, Tensor]:
    """The losses ``[R]`` at z and their gradients ``[R, n]``; ``best`` is updated."""
    z = z.detach().requires_grad_()
    loss, match = objective(z)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    best.see(z.detach(), match.detach())
    return loss.detach(), gradient


def adam(
    objective: Objective,
    start: Tensor,
    *,
    iterations: int,
    lr: float,
    signed: bool = False,
    box: tuple[float, float] | None = None,
) -> BestIterate:
    """Adam, with its step size divided by 10 after 3/8, 5/8 and 7/8 of the iterations.

    ``signed`` feeds it the sign of the gradient; ``box`` clamps the variables, at the start and after each step.
    """
    z = start.clone() if box is None else start.clamp(*box)
    best = BestIterate.of(z)
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    for step in range(iterations):
        _, gradient = evaluate_objective(objective, z, best)
        if signed:
            gradient = gradient.sign()
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = lr * 0.1 ** sum(8 * step >= part * iterations for part in (3, 5, 7))
        root = (second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        z = z - size * first / (1 - 0.9 ** (step + 1)) / root
        if box is not None:
            z = z.clamp(*box)
    return best


def lbfgs(objective: Objective, start: Tensor, *, iterations: int, lr: float = 1.0, history: int = 100) -> BestIterate:
    """L-BFGS with a fixed step size and no line search, as in DLG: the first step size is ``min(1, 1 / |g|_1) lr``.

    Each row has its own curvature pairs. A row stops if its gradient vanishes or is not finite, or if its direction is no
    descent direction.
    """
    z, best = start.clone(), BestIterate.of(start)
    _, gradient = evaluate_objective(objective, z, best)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    scale = torch.ones_like(z[:, :1])
    size = lr * (1 / gradient.abs().sum(1, keepdim=True)).clamp(max=1)
    for _ in range(iterations):
        direction = -two_loop(gradient, pairs, scale)
        descends = (direction * gradient).sum(1, keepdim=True) < -1e-12
        moving = descends & (gradient.abs().amax(1, keepdim=True) > 1e-7)  # False for nan
        if not moving.any():
            break
        step = torch.where(moving, size * direction, 0)
        z = z + step
        _, new = evaluate_objective(objective, z, best)
        change = new - gradient
        inner = (change * step).sum(1, keepdim=True)
        # A pair without positive curvature would make H indefinite; as zeros it leaves the two loops unchanged in its row
        curved = inner > 1e-10
        pairs = [
            *pairs,
            (torch.where(curved, step, 0), torch.where(curved, change, 0), torch.where(curved, 1 / inner, 0)),
        ]
        pairs = pairs[-history:]
        scale = torch.where(curved, inner / change.square().sum(1, keepdim=True), scale)
        gradient, size = new, torch.full_like(size, lr)
    return best


def two_loop(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor) -> Tensor:
    """``H g``: the inverse Hessian by the pairs ``(s, y, 1 / s.y)``, from ``scale`` times the identity."""
    q, alphas = gradient, []
    for s, y, rho in reversed(pairs):
        alphas.append(rho * (s * q).sum(1, keepdim=True))
        q = q - alphas[-1] * y
    q = q * scale
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        q = q + s * (alpha - rho * (y * q).sum(1, keepdim=True))
    return q
