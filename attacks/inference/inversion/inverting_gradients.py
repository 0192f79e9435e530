"""Inverting Gradients (Geiping et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import MinLen
from torch import Tensor

from fedguard.attacks.inference.inversion.descent import adam
from fedguard.attacks.inference.inversion.matching import (
    Update,
    as_targets,
    check_labels,
    claim,
    cosine,
    dummies,
    infer_labels,
    matching,
    one_gradient,
    polish_reconstruction,
    total_variation,
)
from fedguard.contracts import (
    ONE_VECTOR,
    InferenceAttack,
    InferenceView,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Reconstruction,
)


@dataclass(frozen=True, kw_only=True)
class InvertingGradients(InferenceAttack):
    """Fits images to the direction of the client's gradient, smooth ones preferred.

    min over x of $1 - cos(grad L(x, y), g) + tv * TV(x)$, by Adam on the sign of the gradient, within the value range; the
    step size falls tenfold after $3/8$, $5/8$ and $7/8$ of the iterations. Then L-BFGS continues without the total
    variation, and each restart keeps its better match, see `polish_reconstruction`. The length of g has no effect, so
    clipping changes nothing. Labels that the server does not know are counted from the last layer. An update of several
    local steps is read as one gradient; `local_simulation` does better there.

    Args:
        tv: weights of the total variation (mean absolute difference of neighboring pixels), all tried. The attacker
            takes the result with the nearest cosine, without its variation: the only measure it has.
        lr: step size of Adam, in units of the inputs.
        iterations: steps of Adam.
        polish: steps of L-BFGS after them; 0 for the paper's form.
        restarts: number of starting points for each weight.
    """

    name = "inverting_gradients"
    source = "Geiping et al., Inverting Gradients: How Easy Is It to Break Privacy, NeurIPS 2020"
    goal = "reconstruction"
    needs = ONE_VECTOR

    tv: Annotated[tuple[NonNegativeFloat, ...], MinLen(1)] = (1e-3, 1e-2, 1e-1)
    lr: PositiveFloat = 0.1
    iterations: PositiveInt = 1000
    polish: NonNegativeInt = 300
    restarts: PositiveInt = 4

    def update(self, view: InferenceView) -> Update:
        """The assumed computation of the client."""
        return one_gradient(view)

    def prior(self, view: InferenceView) -> Callable[[Tensor], Tensor]:
        """``x [R, B, *shape] -> [R]``: what else is known of the inputs, as a penalty; nothing by default."""
        return lambda x: x.new_zeros(len(x))

    def check(self, view: InferenceView) -> None:
        check_labels(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        labels = infer_labels(view)
        match, prior = matching(view, self.update(view), cosine), self.prior(view)
        start = dummies(view, self.restarts).repeat(len(self.tv), *(1 for _ in range(1 + len(view.shape))))
        weights = torch.tensor(self.tv).repeat_interleave(self.restarts).to(start)

        def gradient_distance(x: Tensor) -> Tensor:
            return match(x, as_targets(view, labels, len(x)))

        def objective(x: Tensor) -> tuple[Tensor, Tensor]:
            distance = gradient_distance(x)
            return distance + weights * total_variation(x) + prior(x), distance

        best = adam(objective, start, iterations=self.iterations, lr=self.lr, signed=True, box=view.value_range)
        return claim(view, polish_reconstruction(view, best, gradient_distance, self.polish).winner, labels)
