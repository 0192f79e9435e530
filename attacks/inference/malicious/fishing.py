"""Class fishing (Wen et al., ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.layers import Layer, first_dense, last_dense, readings, rows
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, NonNegativeInt, PositiveFloat, Reconstruction
from fedguard.errors import PreconditionError, require


@dataclass(frozen=True, kw_only=True)
class Fishing(InferenceAttack):
    """Silences the examples of all classes but one, and reads the rest from the first layer.

    In the last layer only the row of class c remains, with a bias so low that $p_c$ is about 0: $W_j = 0$ and $b_j = 0$ for
    other j, $b_c = -margin$. The gradient with respect to the layer's input is $(p_c - [y = c]) W_c$, so about 0 for all
    other classes: the first layer's gradient contains the examples of class c alone. A single one is exact in every neuron.

    It needs a network that begins with a dense layer with bias, and has another dense layer that gives the logits.

    Args:
        target: c; None takes the rarest class of the batch if the server knows its labels, otherwise one at random.
        margin: distance of the logit of c below the others, in nats.
    """

    name = "fishing"
    source = "Wen et al., Fishing for User Data in Large-Batch Federated Learning via Gradient Magnification, ICML 2022"
    goal = "reconstruction"
    needs = ONE_VECTOR
    active = True

    target: NonNegativeInt | None = None
    margin: PositiveFloat = 100.0

    def check(self, view: InferenceView) -> None:
        ends(view)
        require(
            self.target is None or self.target < view.classes,
            f"fishing: target: expected a class below {view.classes}; got {self.target}.",
        )

    def tamper(self, view: InferenceView) -> Tensor:
        _, last = ends(view)
        model, target = view.models[-1].clone(), self._target(view)
        weight, bias = last.weight(model), last.bias(model)
        row = weight[target].clone()
        weight.zero_()
        bias.zero_()
        weight[target], bias[target] = row, -self.margin
        return model

    def infer(self, view: InferenceView) -> Reconstruction:
        ends(view)
        return Reconstruction(readings(view, *rows(view)))

    def _target(self, view: InferenceView) -> int:
        if self.target is not None:
            return self.target
        if view.labels is not None:
            counts = view.labels.bincount()
            return int(counts.where(counts > 0, len(view.labels) + 1).argmin())
        return int(torch.randint(view.classes, (), generator=view.rng.child("fishing").torch()))


def ends(view: InferenceView) -> tuple[Layer, Layer]:
    """The layer that the attack reads, and the layer that it changes."""
    first, last = first_dense(view), last_dense(view)
    if first.module is last.module or last.module.bias is None:
        raise PreconditionError(
            "fishing: expected two dense layers and more, the last one with bias. Use the model mlp."
        )
    return first, last
