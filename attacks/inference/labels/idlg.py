"""The label rule of iDLG (Zhao et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.labels.last_layer import weight_gradient
from fedguard.attacks.inference.layers import last_dense
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Labels
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class IDLGLabels(InferenceAttack):
    """The label of a single example, by the one row of the last layer's gradient that points against the others.

    Row c is $(p_c - [y = c]) h$, negative for y alone: $y = argmin_c dL/db_c$. Without a bias the features h need not be
    positive, so the rule is $y = argmin_c sum_{j != c} <dL/dW_c, dL/dW_j>$, which needs three classes.
    """

    name = "labels_idlg"
    source = "Zhao et al., iDLG: Improved Deep Leakage from Gradients, 2020"
    goal = "labels"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        last = last_dense(view)
        if view.count != 1:
            raise PreconditionError(f"labels_idlg: expected one example; got {view.count}. Use labels_llg.")
        if last.module.bias is None and view.classes < 3:
            raise PreconditionError("labels_idlg: expected a last layer with bias, or three classes; got neither.")

    def infer(self, view: InferenceView) -> Labels:
        self.check(view)
        bias = last_dense(view).bias(view.gradient)
        if len(bias):
            return Labels(bias.argmin()[None])
        weight = weight_gradient(view)
        inner = weight @ weight.T
        return Labels((inner.sum(1) - inner.diagonal()).argmin()[None])
