"""Measurements of membership inference: losses, gradients, shadow models, and simulated updates.

All are taken at flat parameters float32 ``[d]``, for the view's candidates or for given examples.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cosine_similarity, cross_entropy

from fedguard.contracts import Examples, InferenceView, Sight
from fedguard.errors import InputError
from fedguard.rng import Rng

#: Maximum number of floats in the gradients of one block of examples.
BLOCK_FLOATS = 16 << 20
#: Least number of shadow models with a candidate, and without it, if sets are not halves of the candidates.
FEWEST = 16


def require_candidates(view: InferenceView) -> Examples:
    """The candidates: float32 ``[N, *shape]`` with labels."""
    if view.candidates is None:
        raise InputError("candidates: expected the examples whose membership is asked for; got none. Give some.")
    return view.candidates


def victim_updates(view: InferenceView) -> Tensor:
    """float32 ``[T, d]``: the victim's update in each watched round if it is visible, else the mean that contains it."""
    return view.updates[:, view.victim] if Sight.EACH_UPDATE in view.granted else view.aggregates


@torch.no_grad()
def losses(view: InferenceView, models: Tensor) -> Tensor:
    """float64 ``[k, N]``: each candidate's cross-entropy, ``-log p_y``, under each of the models ``[k, d]``."""
    examples = require_candidates(view)
    return torch.stack(
        [cross_entropy(view.predict(model, examples.x).double(), examples.y, reduction="none") for model in models]
    )


@torch.no_grad()
def confidences(view: InferenceView, models: Tensor) -> Tensor:
    """float64 ``[k, N]``: ``log p_y - log(1 - p_y)``, as ``z_y - log sum_{c != y} e^{z_c}``, which never overflows."""
    examples = require_candidates(view)
    right = torch.zeros(len(examples), view.classes, dtype=torch.bool)
    right[torch.arange(len(examples)), examples.y] = True
    logits = [view.predict(model, examples.x).double() for model in models]
    return torch.stack([z[right] - z.masked_fill(right, -torch.inf).logsumexp(1) for z in logits])


def gradients(view: InferenceView, model: Tensor, first: int = 0) -> Iterator[Tensor]:
    """float32 ``[block, d]``: the gradient of each candidate's own loss at ``model`` (``[d]``), block after block.

    It starts from candidate number ``first``.
    """
    examples = require_candidates(view)

    def loss(parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(view.predict(parameters, x[None]), y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    for rows in torch.split(torch.arange(first, len(examples)), max(1, BLOCK_FLOATS // len(model))):
        yield each(model, examples.x[rows], examples.y[rows])


def cosines(view: InferenceView, model: Tensor, updates: Tensor) -> Tensor:
    """float64 ``[m, N]``: ``cos(-grad loss(x_i, model), u)`` of each candidate with each of the updates ``[m, d]``.

    Both are compared after the transformation that clients apply before sending, see `InferenceView.adapt`.
    """
    blocks = [
        torch.stack([cosine_similarity(*view.adapt(-block, update), dim=-1) for update in updates])
        for block in gradients(view, model)
    ]
    return torch.cat(blocks, dim=1).double()


def halves(number: int, count: int, rng: Rng) -> Tensor:
    """bool ``[number, count]``: random halves and their complements, so that each example is in half of them."""
    return folds(number, count, 2, rng)


def folds(number: int, count: int, parts: int, rng: Rng) -> Tensor:
    """bool ``[number, count]``: the parts of random partitions into ``parts``, so that each example is in as many of them."""
    orders = torch.rand(number // parts, 1, count, generator=rng.torch()).argsort(-1)
    # Random ranks are cut into parts that differ by at most one in size; each candidate is in exactly one part
    return (orders * parts // count == torch.arange(parts)[:, None]).flatten(0, 1)


def shadow_sets(number: int, count: int, size: int, rng: Rng) -> Tensor:
    """bool ``[number, count]``: sets of about ``size`` candidates, each candidate in as many of them as any other.

    The candidates are repeatedly partitioned into p parts, and each set is one part, or all but one: halves for p = 2, else
    the closest to ``size``. p is a divisor of ``number`` up to a sixteenth of it, so that both sides have enough models for
    a distribution.
    """
    choices = [p for p in range(2, max(2, number // FEWEST) + 1) if number % p == 0]
    sizes = [(count / p, p, False) for p in choices] + [(count - count / p, p, True) for p in choices]
    _, parts, all_but = min(sizes, key=lambda one: (abs(one[0] - size), one[1]))
    chosen = folds(number, count, parts, rng)
    return ~chosen if all_but else chosen


def shadow_models(view: InferenceView, shadows: int) -> tuple[Tensor, Tensor]:
    """Models float32 ``[shadows, d]``, each trained on about as many candidates as the model under attack on examples.

    Also bool ``[shadows, N]``: the candidates of each.
    """
    examples = require_candidates(view)
    inside = shadow_sets(shadows, len(examples), view.count, view.rng.child("halves"))
    return view.train([examples[chosen] for chosen in inside], view.rng.child("shadows")), inside


def local_updates(view: InferenceView, model: Tensor, x: Tensor, y: Tensor, rng: Rng) -> Tensor:
    """float32 ``[k, d]``: the updates of k clients with ``x [k, B, *shape], y [k, B]``, by the federation's local plan.

    All visit their examples in the same random order, so only the examples differ. Noise, and what clients do to an update
    before they send it, are left out.
    """

    def loss(parameters: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(view.predict(parameters, x), y)

    each, draw = vmap(grad(loss)), rng.torch()
    moved = torch.zeros(len(y), len(model))
    velocity = torch.zeros_like(moved)
    for rows in _batches(view, y.shape[1], draw):
        velocity = view.plan.momentum * velocity + each(model + moved, x[:, rows], y[:, rows])
        moved = moved - view.plan.lr * velocity
    return moved


def _batches(view: InferenceView, size: int, draw: torch.Generator) -> Iterator[Tensor]:
    plan = view.plan
    batch = min(plan.batch_size or size, size)
    if plan.steps is not None:
        yield from (torch.randperm(size, generator=draw)[:batch] for _ in range(plan.steps))
        return
    for _ in range(plan.epochs or 1):
        yield from torch.split(torch.randperm(size, generator=draw), batch)
