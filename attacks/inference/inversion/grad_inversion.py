"""GradInversion (Yin et al., CVPR 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.inference.inversion.descent import adam
from fedguard.attacks.inference.inversion.matching import (
    as_targets,
    check_labels,
    claim,
    dummies,
    infer_labels,
    matching,
    one_gradient,
    polish_reconstruction,
    square_distance,
    total_variation,
)
from fedguard.attacks.inference.layers import last_dense
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
class GradInversion(InferenceAttack):
    """Several restarts fit images to the gradient and pull each other towards their mean.

    min over $x_1, ..., x_R$ of the sum over r of $|grad L(x_r, y) - g|^2 / |g|^2 + tv * TV(x_r) + l2 * mean(x_r^2) + group
    * mean((x_r - mean_s x_s)^2)$, by Adam with the step decays of Inverting Gradients. If the server does not know the
    labels, it takes the B classes with the least entry in their row of the last layer's gradient. This assumes a batch
    without repeated labels and nonnegative features; with more examples than classes the labels are counted. The paper's
    prior on BatchNorm statistics does not apply, since models with BatchNorm are refused. Its noise in the steps and the
    registration of the restarts before averaging are left out.

    Args:
        tv: weight of the total variation.
        l2: weight of the images' energy.
        group: weight of the distance to the restarts' mean.
        lr: step size of Adam, in units of the inputs.
        iterations: steps of Adam.
        polish: steps of L-BFGS after them, without priors, see `polish_reconstruction`; 0 for the paper's form.
        restarts: starting points; the one that ends with the nearest gradient is claimed.
    """

    name = "grad_inversion"
    source = "Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021"
    goal = "reconstruction"
    needs = ONE_VECTOR

    tv: NonNegativeFloat = 1e-3
    l2: NonNegativeFloat = 1e-4
    group: NonNegativeFloat = 1e-2
    lr: PositiveFloat = 0.1
    iterations: PositiveInt = 1000
    polish: NonNegativeInt = 300
    restarts: PositiveInt = 4

    def check(self, view: InferenceView) -> None:
        check_labels(view)

    def infer(self, view: InferenceView) -> Reconstruction:
        labels = batch_labels(view) if view.labels is None else view.labels
        match = matching(view, one_gradient(view), square_distance)
        length = view.gradient.square().sum().clamp(min=1e-30)

        def gradient_distance(x: Tensor) -> Tensor:
            return match(x, as_targets(view, labels, len(x))) / length

        def objective(x: Tensor) -> tuple[Tensor, Tensor]:
            distance = gradient_distance(x)
            energy, apart = (part.square().flatten(1).mean(1) for part in (x, x - x.mean(0)))
            return distance + self.tv * total_variation(x) + self.l2 * energy + self.group * apart, distance

        start = dummies(view, self.restarts)
        best = adam(objective, start, iterations=self.iterations, lr=self.lr, box=view.value_range)
        return claim(view, polish_reconstruction(view, best, gradient_distance, self.polish).winner, labels)


def batch_labels(view: InferenceView) -> Tensor:
    """int64 ``[B]``: the classes with the least entry in their row of the last layer's gradient, in ascending order."""
    if view.count > view.classes:
        return infer_labels(view)
    return last_dense(view).weight(view.gradient).amin(1).argsort()[: view.count].sort().values
