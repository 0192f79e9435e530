"""Improved Deep Leakage from Gradients (Zhao et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.inference.inversion.descent import lbfgs
from fedguard.attacks.inference.inversion.matching import (
    as_targets,
    check_labels,
    claim,
    dummies,
    infer_labels,
    matching,
    one_gradient,
    square_distance,
)
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, PositiveInt, Reconstruction


@dataclass(frozen=True, kw_only=True)
class IDLG(InferenceAttack):
    """Reads the label off the last layer's signs, then fits the inputs alone.

    With one example the bias gradient is p - onehot(y), negative at y only; so are the row sums of the weight gradient if
    features are nonnegative. Then min over x of $|grad L(x, y) - g|^2$ by L-BFGS with step size 1; it works best on smooth
    networks, as DLG does. The labels of a batch are counted; see `infer_labels`.

    Args:
        iterations: steps of L-BFGS.
        restarts: number of starting points; the one that ends with the nearest gradient is claimed.
    """

    name = "idlg"
    source = "Zhao et al., iDLG: Improved Deep Leakage from Gradients, 2020"
    goal = "reconstruction"
    needs = ONE_VECTOR

    iterations: PositiveInt = 300
    restarts: PositiveInt = 4

    def check(self, view: InferenceView) -> None:
        check_labels(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        labels = infer_labels(view)
        match = matching(view, one_gradient(view), square_distance)

        def objective(z: Tensor) -> tuple[Tensor, Tensor]:
            loss = match(z.view(-1, view.count, *view.shape), as_targets(view, labels, len(z)))
            return loss, loss

        start = dummies(view, self.restarts).flatten(1)
        return claim(view, lbfgs(objective, start, iterations=self.iterations).winner, labels)
