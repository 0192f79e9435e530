"""Adapters whose weighted products are stacked and folded beside the frozen weights, exactly (FLoRA)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from fedguard.adapters.form import AdapterForm
from fedguard.adapters.layers import LowRankLinear
from fedguard.adapters.pairs import FactorPlaces, place_pairs, place_parameters
from fedguard.adapters.products import FactorStack, ProductRows
from fedguard.adapters.refusals import why_no_products
from fedguard.contracts import Architecture, Cell
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Stacked(AdapterForm):
    """Clients train and send A and B; the rule sees their products, and the whole result goes into the weights.

    The layer computes $(W + F) x + s B A x$ with a sum F of the former rounds' results, which clients receive and do not
    train. After a round $F <- F + s (B A + sum_i w_i (B_i A_i - B A))$, of a rank of up to n r, and the adapter begins anew
    with B = 0 and the same A. Nothing is cut off. What the server sends grows with the clients (stacks of $w_i B_i$ and $A_i$);
    here F counts among the d parameters.
    """

    name = "stacked"
    source = "Wang et al., FLoRA: Federated Fine-Tuning LLMs with Heterogeneous Low-Rank Adaptations, NeurIPS 2024"
    words = (
        "clients send both factors, the rule sees their product B A, and the whole result is folded into the weights, whatever "
        "its rank"
    )
    of_products = True

    def freeze(self, module: nn.Module) -> None:
        if self.rank is None:
            raise ConfigError(
                "training.adapters: stacked folds results into the layers beside which FedGuard puts adapters; this network "
                "has its own. Set rank for a network without adapters, or use form: product."
            )
        for pair in self.find_pairs(module):
            layer = module.get_submodule(pair.layer)
            assert isinstance(layer, LowRankLinear)
            layer.keep_folded()

    def reasons(self, cell: Cell, architecture: Architecture) -> Iterator[str]:
        return why_no_products(self.name, cell, architecture)

    def rows(self, module: nn.Module, model: Tensor, updates: Tensor) -> ProductRows:
        places = place_parameters(module)
        pairs = place_pairs(module, self.find_pairs(module))
        folded = {place.pair.layer: places[f"{place.pair.layer}.folded".removeprefix(".")] for place in pairs}
        return _FoldedProducts(pairs, model, updates, folded)


class _FoldedProducts(ProductRows):
    """Rows of products, without the coordinates of what was folded, which no client sends.

    Args:
        folded: where an update has F, by layer.
    """

    def __init__(
        self, places: tuple[FactorPlaces, ...], model: Tensor, updates: Tensor, folded: dict[str, slice]
    ) -> None:
        super().__init__(places, model, updates)
        self.folded = folded

    @cached_property
    def unseen(self) -> tuple[slice, ...]:
        return tuple(self.folded.values())

    def put(self, vector: Tensor, stack: FactorStack, place: FactorPlaces, left: Tensor, right: Tensor) -> None:
        whole = stack.pair.scaling * (left @ right)
        vector[self.folded[place.pair.layer]] = whole.reshape(-1).to(vector.dtype)
        vector[place.b] = -stack.b.reshape(-1).to(vector.dtype)
