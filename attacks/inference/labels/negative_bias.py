"""Labels from the sign of the bias gradient (Wainakh et al., PoPETs 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.labels.last_layer import bias_gradient, cycle_classes, needs_bias
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Labels


@dataclass(frozen=True, kw_only=True)
class NegativeBias(InferenceAttack):
    """The classes whose bias gradient is negative, which occur for certain.

    $dL/db_c = mean p_c - N_c / B$ is negative only where $N_c > 0$. The converse holds while $mean p_c < 1 / B$. The most
    negative come first, and are repeated where there are fewer than B.
    """

    name = "labels_negative_bias"
    source = "Wainakh et al., User-Level Label Leakage from Gradients in Federated Learning, PoPETs 2022"
    goal = "labels"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        needs_bias(view)

    def infer(self, view: InferenceView) -> Labels:
        bias = bias_gradient(view)
        order = bias.argsort(stable=True)
        return Labels(cycle_classes(order[: max(1, int((bias < 0).sum()))], view.count))
