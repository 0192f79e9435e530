"""FLTrust (Cao et al., NDSS 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class FLTrust(WeightRule):
    """Weighs each update by how well its direction agrees with one that the server computes on clean data of its own.

    $R(x) = (1 / (sum_j t_j)) sum_i t_i (|g| / |x_i|) x_i$ with trust $t_i = max(0, cos(x_i, g))$ and g the server's update.
    If no client is trusted, the model stays as it is. The rule withstands any number of malicious clients, and is no
    better than the root data: compare it with training on the root data alone.
    """

    name = "fltrust"
    source = "Cao et al., FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021"
    needs = (Sight.EACH_UPDATE | Sight.ROOT_DATA,)
    breakdown = "any f, if the root data are clean and representative"
    cost = "O(n^2 d): one Gram matrix; one more client's training"

    def anchors(self, context: RuleContext, dim: int) -> Mapping[str, Tensor]:
        return {"root": context.root}

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        norms, root_norm = gram.norms(), float(context.root.double().norm())
        # An update of zeros has no direction; NaN as its trust would make the whole aggregate NaN
        trust = (gram.products_with("root") / (norms * root_norm)).nan_to_num(nan=0.0).clamp(min=0)
        # Else 0/0: nobody points within 90 degrees of the server's update
        if trust.sum() == 0:
            return torch.zeros(gram.n, dtype=torch.float64)
        scaled: Tensor = trust / trust.sum() * root_norm / norms
        return scaled.nan_to_num(nan=0.0, posinf=0.0)
