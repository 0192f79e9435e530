"""Least squares of what was sent on the candidates' gradients: the linear read-out that other memberships are held beside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.membership.signals import gradients, require_candidates, victim_updates
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Membership

#: Candidate ratios of the noise's variance to a coefficient's variance, in units of the largest eigenvalue.
RATIOS = torch.logspace(-9, 2, 111, dtype=torch.float64)
#: Directions below this share of the largest eigenvalue are lost in float32.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class NormalEquations:
    """The normal equations of one regression, in float64.

    Attributes:
        gram: ``K = G G^T``, ``[N, N]``, of the candidates' rows G.
        inner: ``b = G u``, ``[N]``, with the observed update u.
        square: ``|u|^2``.
        coordinates: d, the length of u.
    """

    gram: Tensor
    inner: Tensor
    square: float
    coordinates: int

    def __add__(self, other: NormalEquations) -> NormalEquations:
        """Both observations together, with the same coefficients."""
        return NormalEquations(
            self.gram + other.gram,
            self.inner + other.inner,
            self.square + other.square,
            self.coordinates + other.coordinates,
        )


@dataclass(frozen=True, kw_only=True)
class LeastSquares(InferenceAttack):
    """An update is a weighted sum of the gradients of what was trained on, so the weights are regressed on candidates.

    $u_t = -sum_i a_ti grad loss(x_i, theta_t) + "rest"$,   $score(x_i) = sum_t a_ti$,   $a_t = (G G^T + rho I)^-1 G u_t$

    over the watched rounds t, with rows $-grad loss(x_i, theta_t)$ in G. $u_t$ is the victim's update, or the mean that
    contains it; for a sum the candidates of all clients enter one regression, which separates the clients. A cosine
    compares each candidate alone, so the component common to a class dominates it; in a regression the candidates explain
    each other away. $theta_t$ is the model sent; if a client took several steps, it is the middle of its path, estimated
    from the update. The gradients of DP-SGD are clipped as the client clips them.

    $rho = sigma^2 / tau^2$ is the ridge: the most likely ratio if u is normal with covariance $tau^2 G^T G + sigma^2 I$,
    where $sigma^2$ is at least the variance of the noise that the protocol is known to add. Rounds in which each client
    takes one step on all its examples have the same weights, and form one regression. It needs updates and models.

    Args:
        ridge: rho in units of the mean square length of the rows; by default the most likely one.
    """

    name = "least_squares"
    source = (
        "Hoerl and Kennard, Ridge Regression, Technometrics 1970; ratio by the evidence after MacKay, Bayesian Interpolation, "
        "Neural Computation 1992"
    )
    goal = "membership"
    needs = ONE_VECTOR
    watches = "training"

    ridge: float | None = None

    def infer(self, view: InferenceView) -> Membership:
        rounds = [
            normal(view, model, update) for model, update in zip(view.models[:-1], victim_updates(view), strict=True)
        ]
        plan = view.plan
        if plan.steps == 1 and plan.batch_size is None and plan.private is None:
            rounds = [sum(rounds[1:], rounds[0])]
        noise = noise_variance(view)
        return Membership(torch.stack([solve_ridge(one, noise, self.ridge) for one in rounds]).sum(0))


def normal(view: InferenceView, model: Tensor, update: Tensor) -> NormalEquations:
    """The regression of one round's update ``[d]`` on the gradients of all candidates, each as a client would send it."""
    where, count = middle(view, model, update), len(require_candidates(view))
    gram, inner = torch.zeros(count, count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    target = view.adapt(torch.zeros_like(update)[None], update)[1].double()
    for start, block in _rows(view, where, update):
        mine = slice(start, start + len(block))
        inner[mine], gram[mine, mine] = block @ target, block @ block.T
        # Gradients are computed again for each pair of blocks: all N of them at once may not fit in memory
        for after, other in _rows(view, where, update, mine.stop):
            theirs = slice(after, after + len(other))
            gram[mine, theirs] = block @ other.T
            gram[theirs, mine] = gram[mine, theirs].T
    return NormalEquations(gram, inner, float(target.square().sum()), len(target))


def middle(view: InferenceView, model: Tensor, update: Tensor) -> Tensor:
    """``[d]``: the mean point of a client's K steps, ``model + (K - 1) / (2 K) update``.

    It is the model sent if there is one step, if noise was added afterwards, and if the message is not the path itself but,
    for example, its signs.
    """
    half = update / 2
    sent_as_it_is = bool(torch.equal(view.adapt(half[None], update)[0][0], half))
    if view.noise or not sent_as_it_is:
        return model
    return model + (view.steps - 1) / (2 * view.steps) * update


def noise_variance(view: InferenceView) -> float:
    """The variance in each coordinate of the noise that the protocol adds to what is observed.

    ``(lr z C / B)^2`` for each of a client's steps of DP-SGD, divided by m in the mean of m clients, plus the variance of
    the noise added to a mean.
    """
    private, variance = view.plan.private, view.noise**2
    if private is not None and view.plan.batch_size is not None:
        mean = math.fsum((clip * noise) ** 2 for clip, noise in private.levels) / len(private.levels)
        steps = view.plan.private_steps(private.sample_rate)
        variance += steps * mean * (view.plan.lr / view.plan.batch_size) ** 2 / len(view.counts)
    return variance


def solve_ridge(equations: NormalEquations, noise: float = 0.0, ridge: float | None = None) -> Tensor:
    """``(K + rho I)^-1 b``, ``[N]``; NaN if the equations are not finite.

    Args:
        noise: lower bound of sigma^2.
        ridge: rho over the mean of K's diagonal; the most likely one for None.
    """
    gram, inner = equations.gram, equations.inner
    if not bool(gram.isfinite().all() and inner.isfinite().all()) or not bool(gram.any()):
        return torch.full_like(inner, torch.nan)  # a model that diverged tells nothing
    values, vectors = torch.linalg.eigh(gram)
    # A Gram matrix has no negative eigenvalues but by rounding
    values, along = values.clamp(min=0), vectors.T @ inner
    if ridge is not None:
        rho = max(ridge * float(gram.diagonal().mean()), TOLERANCE * float(values[-1]))
    else:
        rho = most_likely(values, along, equations.square, equations.coordinates, noise)
    found: Tensor = vectors @ (along / (values + rho))
    return found


def most_likely(values: Tensor, along: Tensor, square: float, coordinates: int, noise: float = 0.0) -> float:
    """The ratio rho under which ``u ~ N(0, sigma^2 (I + G^T G / rho))`` is most likely, with the best sigma^2 >= ``noise``.

    With eigenvalues k_j of K, ``z_j^2 = (v_j b)^2 / k_j``, the square of u along each eigenvector, and r the rest of
    ``|u|^2``: ``-2 log p = d log sigma^2 + sum_j log(1 + k_j / rho) + (r + sum_j z_j^2 / (1 + k_j / rho)) / sigma^2``.
    """
    there = values > TOLERANCE * values[-1]
    k = values[there]
    z = along[there].square() / k
    # Projections are no longer than u but for rounding
    rest = max(square - float(z.sum()), 0.0)
    ratios = RATIOS * float(values[-1])
    spread = 1 + k / ratios[:, None]
    misfit = (z / spread).sum(1) + rest
    variance = (misfit / coordinates).clamp(min=max(noise, torch.finfo(torch.float64).tiny))
    cost = coordinates * variance.log() + spread.log().sum(1) + misfit / variance
    return float(ratios[cost.argmin()])


def _rows(view: InferenceView, where: Tensor, update: Tensor, first: int = 0) -> Iterator[tuple[int, Tensor]]:
    """The candidates from number ``first`` on, as float64 blocks ``[block, d]`` with the number of the first of each."""
    private = view.plan.private
    clip = None if private is None else max(clip for clip, _ in private.levels)
    for block in gradients(view, where, first):
        short = block if clip is None else block * (clip / block.norm(dim=1, keepdim=True)).clamp(max=1)
        yield first, view.adapt(-short, update)[0].double()
        first += len(block)
