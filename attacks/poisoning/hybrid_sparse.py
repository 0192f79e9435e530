"""Hybrid sparse attack (Ozfatura et al., 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.poisoning.alie import supportive_z
from fedguard.attacks.search import spread
from fedguard.contracts import PoisonAttack, PoisonView, Share, Sight, State


@dataclass(frozen=True, kw_only=True)
class HybridSparse(PoisonAttack):
    """A strong shift of the few parameters on which the network depends most, a slight one of all others.

    $b = mu - c * sigma$, coordinate by coordinate, with $c = strong$ for the parameters in the mask and $c = z$ elsewhere,
    as in `alie`; $mu$ and $sigma$ are mean and standard deviation of the benign sample. The mask is computed once, in the
    first round. It holds all biases and normalization parameters, which are the tensors of one dimension. From the weights
    of all layers together it holds the ``share``, rounded up, with the largest nonzero saliency $|w_k mu_k|$. ``by_layer``
    takes the share of each layer's weights instead.

    The source prunes the network before the training by FORCE, which iterates this saliency over a hundred steps on batches
    of the clients' data. Here it is one step, with the mean of the first benign updates for the gradient.

    Args:
        share: of the weights, in (0, 1].
        strong: shift in standard deviations within the mask.
        z: the same elsewhere; None takes ALIE's formula.
        by_layer: whether the share applies to each layer instead of the whole network.
    """

    name = "hybrid_sparse"
    source = "Ozfatura et al., Aggressive or Imperceptible, or Both: Network Pruning Assisted Hybrid Byzantines, 2024"
    needs = (Sight.HONEST_UPDATES | Sight.MODEL, Sight.OWN_DATA | Sight.MODEL)

    share: Share = 0.005
    strong: float = 1.5
    z: float | None = None
    by_layer: bool = False

    def craft(self, view: PoisonView) -> Tensor:
        z = self.z if self.z is not None else supportive_z(view.n, view.f)
        factors = torch.where(self._mask(view), self.strong, z)
        return (view.benign.mean(0) - factors * spread(view.benign)).expand(view.f, -1)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return {"mask": self._mask(view)}

    def _mask(self, view: PoisonView) -> Tensor:
        """bool ``[d]``."""
        if "mask" in view.state:
            return view.state["mask"]
        saliency, mask = (view.model * view.benign.mean(0)).abs(), torch.zeros(view.dim, dtype=torch.bool)
        tensors = torch.split(torch.arange(view.dim), [*view.layers])
        weights = [places for places, rank in zip(tensors, view.ranks, strict=True) if rank > 1]
        for places in weights if self.by_layer or not weights else [torch.cat(weights)]:
            largest = saliency[places].topk(math.ceil(self.share * len(places))).indices
            mask[places[largest]] = True
        # topk fills up with zeros where fewer weights than the share have a saliency
        mask &= saliency > 0
        for places, rank in zip(tensors, view.ranks, strict=True):
            mask[places] |= rank == 1
        return mask
