"""LLG (Wainakh et al., PoPETs 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.attacks.inference.labels.last_layer import probe_last_layer, weight_gradient
from fedguard.attacks.inference.layers import last_dense
from fedguard.contracts import ONE_VECTOR_AND_ROOT, InferenceAttack, InferenceView, Labels


@dataclass(frozen=True, kw_only=True)
class LLG(InferenceAttack):
    """Labels one after the other, each taking from its class's gradient what one example adds to it.

    $g_c = sum_m dL/dW_{c, m}$. The classes with $g_c < 0$ occur for certain. Then, until there are B labels, the attack
    claims the class with the smallest $g_c - s_c$ and subtracts m from it. The impact $m = (1 + 1/C) mean_c g_c / B$ on
    batches of class c alone, and the offset $s_c$, the mean of $g_c$ on batches without c, are computed on the server's
    root data (LLG+), otherwise on noise (LLG*). It assumes nonnegative features.
    """

    name = "labels_llg"
    source = "Wainakh et al., User-Level Label Leakage from Gradients in Federated Learning, PoPETs 2022"
    goal = "labels"
    needs = ONE_VECTOR_AND_ROOT

    def check(self, view: InferenceView) -> None:
        last_dense(view)

    def infer(self, view: InferenceView) -> Labels:
        gradient = weight_gradient(view).sum(1)
        features, predicted = probe_last_layer(view, view.model)
        size = features.sum(1, keepdim=True)
        offset = (predicted * size).mean(0)
        impact = float(((predicted - 1) * size).mean()) * (1 + 1 / view.classes) / view.count
        certain = [c for c in gradient.argsort(stable=True).tolist() if gradient[c] < 0][: view.count]
        rest = gradient - offset
        # impact is negative: subtracting it raises the class, whose next example is then less likely to be claimed
        rest[certain] -= impact
        labels = [*certain]
        while len(labels) < view.count:
            labels.append(int(rest.argmin()))
            rest[labels[-1]] -= impact
        return Labels(torch.tensor(labels))
