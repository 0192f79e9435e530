"""Both factors of each adapter, averaged apart: what federated averaging makes of LoRA (FedIT)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fedguard.adapters.form import AdapterForm
from fedguard.adapters.pairs import place_pairs
from fedguard.adapters.products import factor_bias


@dataclass(frozen=True, kw_only=True)
class Factors(AdapterForm):
    """Clients train and send A and B, and the server aggregates them coordinate by coordinate.

    The model after the mean has the adapter $mean(B) mean(A)$, which is not the mean $mean(B A)$ of the clients' adapters.
    How far it is from it is ``factor_bias``. The pair (c A, B / c) is the same adapter, but another row: a client that sends it
    with a large c ruins the mean (attack ``gauge``).
    """

    name = "factors"
    source = "Zhang et al., Towards Building the Federated GPT: Federated Instruction Tuning (FedIT), ICASSP 2024"
    words = "clients send both factors A and B, and the rule sees them as coordinates"

    def bias(self, module: nn.Module, model: Tensor, updates: Tensor) -> float | None:
        return factor_bias(place_pairs(module, self.find_pairs(module)), model, updates)
