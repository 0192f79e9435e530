"""Distances between the update of dummy examples and the observed one, for many restarts at once.

Dummy inputs are ``[R, B, *shape]`` for R restarts, their targets ``[R, B, C]`` probabilities of each class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fedguard.attacks.inference.inversion.descent import BestIterate, lbfgs
from fedguard.attacks.inference.layers import last_dense
from fedguard.contracts import InferenceView, Reconstruction
from fedguard.errors import PreconditionError

#: ``(x [R, B, *shape], targets [R, B, C]) -> [R, d]``: the client's update for these examples.
Update = Callable[[Tensor, Tensor], Tensor]
#: ``(dummy [R, d], observed [d]) -> [R]``.
Distance = Callable[[Tensor, Tensor], Tensor]


def mean_loss(view: InferenceView, model: Tensor, x: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """``-sum_i w_i sum_c targets_ic log p_ic``, p the softmax of the logits: cross-entropy with soft labels."""
    log_p = view.predict(model, x).log_softmax(-1)
    return -(weights * (targets * log_p).sum(-1)).sum()


def one_gradient(view: InferenceView) -> Update:
    """The update read as one gradient at the model sent: ``-lr steps`` times the gradient of the clients' mean loss."""
    # The mean of the clients' means, so that an example of a smaller client counts more
    weights = torch.cat([view.model.new_full((n,), 1 / (n * len(view.counts))) for n in view.counts])
    scale = -view.plan.lr * view.steps

    def loss(model: Tensor, x: Tensor, targets: Tensor) -> Tensor:
        return mean_loss(view, model, x, targets, weights)

    gradient = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda x, targets: scale * gradient(view.model, x, targets)


def matching(view: InferenceView, update: Update, distance: Distance) -> Callable[[Tensor, Tensor], Tensor]:
    """``(x, targets) -> [R]``: the distance of each restart's update from the observed one, both as clients adapt them.

    It is measured in gradients (updates over ``lr steps``), so that an L2 distance does not depend on the learning rate.
    """
    scale = view.plan.lr * view.steps

    def match(x: Tensor, targets: Tensor) -> Tensor:
        dummy, observed = view.adapt(update(x, targets), view.target)
        return distance(dummy / scale, observed / scale)

    return match


def polish_reconstruction(
    view: InferenceView, best: BestIterate, matched: Callable[[Tensor], Tensor], iterations: int
) -> BestIterate:
    """Continue Adam's result by L-BFGS without priors; each restart keeps its better match.

    min over x of ``matched(x) / m``, where m is the distance of Adam's iterate. The scaling matters because L-BFGS with
    step size 1 takes first steps as long as the gradient, which near the truth is far too short. Priors lead Adam near the
    truth, but keep it from reaching the truth. Inputs are clamped to the value range.

    Args:
        best: ``[R, B, *shape]``.
        matched: ``x [R, B, *shape] -> [R]``: the distance without priors.
        iterations: of L-BFGS.
    """
    unit = best.match.clamp(min=torch.finfo(best.match.dtype).tiny)

    def objective(z: Tensor) -> tuple[Tensor, Tensor]:
        distance = matched(z.view(best.z.shape).clamp(*view.value_range))
        return distance / unit, distance

    found = lbfgs(objective, best.z.flatten(1), iterations=iterations)
    kept = BestIterate(best.z.clone(), best.match.clone())
    kept.see(found.z.view(best.z.shape).clamp(*view.value_range), found.match)
    return kept


def square_distance(dummy: Tensor, observed: Tensor) -> Tensor:
    """``|g' - g|^2``."""
    return (dummy - observed).square().sum(-1)


def cosine(dummy: Tensor, observed: Tensor) -> Tensor:
    """``1 - <g', g> / (|g'| |g|)``."""
    return 1 - torch.cosine_similarity(dummy, observed, dim=-1, eps=1e-12)


def total_variation(x: Tensor) -> Tensor:
    """``[R]``: the mean of ``|x_ij - x_i,j+1|`` plus the mean of ``|x_ij - x_i+1,j|``; 0 for inputs that are no images."""
    variation = x.new_zeros(len(x))
    for axis in (-1, -2):
        if x.ndim >= 4 and x.shape[axis] > 1:
            variation = variation + x.diff(dim=axis).abs().flatten(1).mean(1)
    return variation


def dummies(view: InferenceView, restarts: int) -> Tensor:
    """``[R, B, *shape]``: standard normal noise around the middle of the value range, a quarter of its width."""
    low, high = view.value_range
    noise = [
        torch.randn(view.count, *view.shape, generator=view.rng.child("dummy", r).torch()) for r in range(restarts)
    ]
    return (torch.stack(noise) * (high - low) / 4 + (high + low) / 2).to(view.model)


def as_targets(view: InferenceView, labels: Tensor, restarts: int) -> Tensor:
    """Labels ``[B]`` as one-hot targets ``[R, B, C]``, the same in each restart."""
    return nn.functional.one_hot(labels, view.classes).to(view.model).expand(restarts, -1, -1)


def check_labels(view: InferenceView) -> None:
    """Raise `PreconditionError` if the server does not know the labels and no dense last layer reveals them."""
    try:
        if view.labels is None:
            last_dense(view)
    except PreconditionError as error:
        raise PreconditionError(
            f"{error} Or use dlg, which needs no labels, or tell the server the labels with observer.labels."
        ) from None


def infer_labels(view: InferenceView) -> Tensor:
    """int64 ``[B]``: the labels that the server knows, otherwise those inferred from the last layer, in ascending order.

    The bias gradient of class c is the mean of p_ic minus n_c / B. If it is negative, c occurs; further labels go to the
    classes with the largest n_c, with the mean of p_ic as predicted on noise. Without a bias the row sums of the weight
    gradient replace it, in units of the features' mean sum on noise; there features must not be negative.
    """
    if view.labels is not None:
        return view.labels

    last = last_dense(view)

    def signal(gradient: Tensor) -> Tensor:
        return last.weight(gradient).sum(1) if last.module.bias is None else last.bias(gradient)

    noise = dummies(view, 10).clamp(*view.value_range)
    p = view.predict(view.model, noise.flatten(0, 1)).softmax(-1).mean(0)
    all_first = as_targets(view, torch.zeros(view.count, dtype=torch.int64), len(noise))
    dummy = one_gradient(view)(noise, all_first).mean(0) / (-view.plan.lr * view.steps)
    # With all dummies in class 0, row 0 is (p_0 - 1) times the mean sum of the features: the unit of the counts
    unit = -signal(dummy)[0] / (1 - p[0])  # 1 for a bias
    observed = signal(view.gradient)
    counts = (p - observed / unit).double() * view.count
    labels = [int(c) for c in observed.argsort() if observed[c] < 0][: view.count]
    for label in labels:
        counts[label] -= 1
    while len(labels) < view.count:
        labels.append(int(counts.argmax()))
        counts[labels[-1]] -= 1
    return torch.tensor(sorted(labels))


def claim(view: InferenceView, x: Tensor, labels: Tensor) -> Reconstruction:
    """One restart's examples as a claim: inputs within the value range."""
    return Reconstruction(
        x.detach().view(view.count, *view.shape).clamp(*view.value_range).to(torch.get_default_dtype()), labels
    )
