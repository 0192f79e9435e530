"""Deep Leakage from Gradients (Zhu et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.inference.inversion.descent import lbfgs
from fedguard.attacks.inference.inversion.matching import claim, dummies, matching, one_gradient, square_distance
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, PositiveInt, Reconstruction


@dataclass(frozen=True, kw_only=True)
class DLG(InferenceAttack):
    """Fits dummy inputs and soft labels together, until their gradient is the client's.

    min over x, y of $|grad L(x, softmax y) - g|^2$, by L-BFGS with step size 1. It differentiates the gradient once more,
    so it works best on smooth networks (sigmoid or tanh, average pooling); ReLU in deep networks and max pooling spoil it.
    It needs no labels, and does not use labels that the server knows.

    Args:
        iterations: steps of L-BFGS.
        restarts: number of starting points; the one that ends with the nearest gradient is claimed.
    """

    name = "dlg"
    source = "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019"
    goal = "reconstruction"
    needs = ONE_VECTOR

    iterations: PositiveInt = 300
    restarts: PositiveInt = 4

    def infer(self, view: InferenceView) -> Reconstruction:
        match = matching(view, one_gradient(view), square_distance)
        x = dummies(view, self.restarts).flatten(1)
        generator = view.rng.child("soft labels").torch()
        y = torch.randn(self.restarts, view.count * view.classes, generator=generator).to(x)

        def objective(z: Tensor) -> tuple[Tensor, Tensor]:
            inputs, logits = torch.split(z, [x.shape[1], y.shape[1]], dim=1)
            targets = logits.view(-1, view.count, view.classes).softmax(-1)
            loss = match(inputs.view(-1, view.count, *view.shape), targets)
            return loss, loss

        best = lbfgs(objective, torch.cat([x, y], dim=1), iterations=self.iterations).winner
        inputs, logits = torch.split(best, [x.shape[1], y.shape[1]])
        return claim(view, inputs, logits.view(view.count, view.classes).argmax(1))
