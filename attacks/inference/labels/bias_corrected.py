"""Label counts from the last layer's bias (Geng et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.labels.last_layer import bias_gradient, multiset, needs_bias, probe_last_layer
from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Labels


@dataclass(frozen=True, kw_only=True)
class BiasCorrection(InferenceAttack):
    """How often each class occurs, from the bias gradient and what the model predicts on average.

    $dL/db_c = mean p_c - N_c / B$, so $N_c = B (mean p_c - dL/db_c)$, duplicates included. The mean prediction is taken on
    the server's root data if it has any, otherwise on noise; the error is the batch's difference from these.
    """

    name = "labels_bias_corrected"
    source = "Geng et al., Towards General Deep Leakage in Federated Learning, 2021"
    goal = "labels"
    needs = ONE_VECTOR_AND_ROOT

    def check(self, view: InferenceView) -> None:
        needs_bias(view)

    def infer(self, view: InferenceView) -> Labels:
        _, predicted = probe_last_layer(view, view.model)
        return Labels(multiset(predicted.mean(0) - bias_gradient(view), view.count))
