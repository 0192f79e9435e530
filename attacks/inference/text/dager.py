"""DAGER: text from the first attention's gradients (Petrov et al., NeurIPS 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import Layer
from fedguard.attacks.inference.text.tokens import candidates, token_layers
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, PositiveFloat
from fedguard.contracts.inference import RecoveredText

#: The share of the largest singular value up to which a singular value is rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class DAGER(InferenceAttack):
    """Claims each token whose input to the first attention, at some place, lies in the span of the gradient's rows.

    The gradient of a dense layer is $G = sum_t delta_t z_t^T$ over the tokens of the batch, with inputs $z_t$ before the first
    attention that are functions of token and place alone. So each row of G lies in the span of the $z_t$; and while the
    tokens are no more than the rank of G can be, $min(o, i)$, the span is the rows' own, and each $z_t$ lies in it. A token is
    claimed if some place has $|z - Pi z| <= threshold |z|$, where $Pi$ projects onto the span. With more tokens the rows tell
    nothing: either no token lies in their span, or all do.

    The layers are query, key and value of the first attention, or adapters beside them: of $B A$ the gradient by A has the
    rows of the inputs, and the gradient by B the rows $A z_t$, if A is known, as frozen or as sent with the model. Layers
    with equal inputs are taken together. Of a single text the order is found as well, where places are embedded.

    It is exact for one step on the batch. It needs texts, and a trained dense layer that reads each token by itself. Shares of
    attention add up to 1, so the gradient by a single head's query misses one dimension of each text.

    Args:
        threshold: the largest distance from the span at which a token is claimed, as a share of its input's length.
    """

    name = "dager"
    source = "Petrov et al., DAGER: Exact Gradient Inversion for Large Language Models, NeurIPS 2024"
    goal = "text"
    needs = ONE_VECTOR

    threshold: PositiveFloat = 1e-3

    def check(self, view: InferenceView) -> None:
        token_layers(view)

    def infer(self, view: InferenceView) -> RecoveredText:
        layers, span = _widest_span(view)
        if not len(span):
            return RecoveredText(torch.zeros(0, dtype=torch.int64), 0)
        far = torch.cat([_distances(z, span) for z in candidates(view, layers[0].module)])  # [V, length]
        near = far <= self.threshold
        if view.count == 1 and not torch.allclose(far[:, 0], far[:, -1]):
            return RecoveredText(far.argmin(0)[near.any(0)][None], len(span))
        return RecoveredText(near.any(1).nonzero()[:, 0], len(span))


def _widest_span(view: InferenceView) -> tuple[Sequence[Layer], Tensor]:
    """The layers that can hold the most tokens, of a gradient that is not zero; and float64 ``[rank, i]``, orthonormal."""
    best: tuple[Sequence[Layer], Tensor] = ((), torch.zeros(0, 0))
    most = 0
    for layers in token_layers(view):
        gradient = torch.cat([one.weight(view.gradient).double() for one in layers])
        # As many tokens as there are inputs span everything: then each token is in the span
        capacity = min(len(gradient), gradient.shape[1] - 1)
        if capacity > most and bool(gradient.any()):
            most, best = capacity, (layers, span_of(gradient, rounding(view)))
    return best


def rounding(view: InferenceView) -> float:
    """The size of what rounding adds to singular values of a gradient: of the weights, if the update is a difference of two."""
    if view.plan.one_step:
        return 0.0
    eps = torch.finfo(view.target.dtype).eps
    return float(eps * view.models[-1].norm()) / (view.plan.lr * view.steps)


def span_of(rows: Tensor, rounding: float = 0.0) -> Tensor:
    """float64 ``[rank, i]``: an orthonormal basis of the span of the rows ``[o, i]``, without what is rounding."""
    _, sizes, basis = torch.linalg.svd(rows, full_matrices=False)
    kept: Tensor = basis[sizes > max(float(ROUNDING * sizes.max()), rounding)]
    return kept


def _distances(z: Tensor, span: Tensor) -> Tensor:
    """``[...]``: the distance of vectors ``[..., i]`` from a span, as a share of their lengths."""
    far: Tensor = (z - z @ span.T @ span).norm(dim=-1) / z.norm(dim=-1).clamp(min=1e-30)
    return far
