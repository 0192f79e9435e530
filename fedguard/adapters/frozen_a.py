"""Adapters of which A is frozen, so that the mean of B is the mean of products (FFA-LoRA)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedguard.adapters.form import AdapterForm


@dataclass(frozen=True, kw_only=True)
class FrozenA(AdapterForm):
    """A stays as it was drawn, the same at all clients; they train and send B alone.

    $mean(B) A = mean(B A)$: the mean of what is sent is the mean of the clients' adapters, half as much is sent, and no
    client can send the same adapter as another row. Noise on B is Gaussian noise on B A; noise on both factors is not. The
    gradient of B still holds the layer's inputs, projected by A, which is public.
    """

    name = "frozen_a"
    source = "Sun et al., Improving LoRA in Privacy-preserving Federated Learning (FFA-LoRA), ICLR 2024"
    words = "clients send B alone, beside an A that is drawn once and frozen, and the rule sees it as coordinates"

    def freeze(self, module: nn.Module) -> None:
        for pair in self.find_pairs(module):
            module.get_parameter(pair.a).requires_grad_(False)
