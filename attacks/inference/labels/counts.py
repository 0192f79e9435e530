"""Label counts from a FedAvg update (Geng et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.labels.last_layer import bias_gradient, multiset, needs_bias, probe_last_layer
from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Labels


@dataclass(frozen=True, kw_only=True)
class LabelCounts(InferenceAttack):
    """How often each class occurs among the examples of a client that has taken several local steps.

    The update over lr and steps is the mean over the T steps of $mean p_c - N_c / B$. Over these steps the prediction moves
    from the prediction of the model sent to the prediction of the model returned: $N_c = B (mean p_c - dL/db_c)$ with $mean p_c
    = (1 - w) p_c^before + w p_c^after$ and $w = (T - 1) / (2T)$, as for equal steps. The predictions are taken
    on the server's root data if it has any, otherwise on noise. For $T = 1$ this is labels_bias_corrected.
    """

    name = "labels_counts"
    source = "Geng et al., Towards General Deep Leakage in Federated Learning, 2021"
    goal = "labels"
    needs = ONE_VECTOR_AND_ROOT

    def check(self, view: InferenceView) -> None:
        needs_bias(view)

    def infer(self, view: InferenceView) -> Labels:
        before, after = (probe_last_layer(view, model)[1].mean(0) for model in (view.model, view.model + view.target))
        share = (view.steps - 1) / (2 * view.steps)
        predicted = (1 - share) * before + share * after
        return Labels(multiset(predicted - bias_gradient(view), view.count))
