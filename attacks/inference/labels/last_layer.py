"""Shared by the label recoveries: the last layer's gradient, and predictions on inputs that are not the clients'.

With the mean over a batch, dL/db_c = mean p_c - N_c / B, and dL/dW_c the same weighted by the features that go in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import calls, last_dense
from fedguard.contracts import InferenceView, Sight
from fedguard.errors import PreconditionError

#: Number of dummies in place of inputs.
DUMMIES = 256


def weight_gradient(view: InferenceView) -> Tensor:
    """float64 ``[C, features]``."""
    return last_dense(view).weight(view.gradient.double())


def bias_gradient(view: InferenceView) -> Tensor:
    """float64 ``[C]``."""
    needs_bias(view)
    return last_dense(view).bias(view.gradient.double())


def needs_bias(view: InferenceView) -> None:
    """Raise `PreconditionError` where the last layer has no bias."""
    if last_dense(view).module.bias is None:
        raise PreconditionError("expected a last layer with bias. Use labels_llg or labels_yin, which read its weight.")


def probe_last_layer(view: InferenceView, model: Tensor) -> tuple[Tensor, Tensor]:
    """float64 ``[N, features]`` and ``[N, C]``: features before the last layer and probabilities after it, under ``model``.

    The inputs are the root data if granted, otherwise noise within the value range.
    """
    if Sight.ROOT_DATA in view.granted:
        x = view.root.x
    else:
        low, high = view.value_range
        x = low + (high - low) * torch.rand(DUMMIES, *view.shape, generator=view.rng.child("dummies").torch())
    seen, logits = calls(view, x, model)
    return seen[-1].given.double(), logits.double().softmax(1)


def multiset(shares: Tensor, count: int) -> Tensor:
    """int64 ``[count]``: each class as often as its share says, the rest by the largest remainders."""
    # Estimates may be negative; with these set to 0 the rest no longer adds up to 1
    wanted = shares.clamp(min=0)
    wanted = count * wanted / wanted.sum()
    counts = wanted.floor()
    left = count - int(counts.sum())
    counts[(wanted - counts).argsort(descending=True, stable=True)[:left]] += 1
    return torch.arange(len(shares)).repeat_interleave(counts.long())


def cycle_classes(classes: Tensor, count: int) -> Tensor:
    """int64 ``[count]``: the classes in order, from the start again where there are too few."""
    return classes[torch.arange(count) % len(classes)]
