"""The label rule of GradInversion (Yin et al., CVPR 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.labels.last_layer import cycle_classes, weight_gradient
from fedguard.attacks.inference.layers import last_dense
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Labels


@dataclass(frozen=True, kw_only=True)
class YinLabels(InferenceAttack):
    """The B classes with the most negative entry in their row of the last layer's gradient.

    y = the B smallest of $min_m dL/dW_{c, m}$. Each class counts once, so duplicate labels are missed; beyond C labels it
    starts again. It assumes nonnegative features.
    """

    name = "labels_yin"
    source = "Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021"
    goal = "labels"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        last_dense(view)

    def infer(self, view: InferenceView) -> Labels:
        return Labels(cycle_classes(weight_gradient(view).min(1).values.argsort(stable=True), view.count))
