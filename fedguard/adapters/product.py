"""Adapters aggregated as products B A, and cut to their rank again (FlexLoRA)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedguard.adapters.form import AdapterForm
from fedguard.adapters.pairs import FactorPlaces, place_pairs
from fedguard.adapters.products import FactorStack, ProductRows
from fedguard.adapters.refusals import why_no_products
from fedguard.contracts import Architecture, Cell


@dataclass(frozen=True, kw_only=True)
class Product(AdapterForm):
    """Clients train and send A and B; the rule sees what each product B A changes, and the result is cut to rank r.

    The row of client i is $s (B_i A_i - B A)$, which no pair $(c A_i, B_i / c)$ changes. The answer is
    $P = B A + sum_i w_i (B_i A_i - B A)$, of a rank of up to (n + 1) r. Its best approximation of rank r goes on, by two QR
    decompositions and the singular values of a small matrix: $P = (Q_1 R_1) (Q_2 R_2)^T$, $R_1 R_2^T = X S Y^T$. What is cut
    off is lost. Of the ways to write the rest as B A it takes the one to which a descent would lead. Distances and weighted
    sums cost $(n r)^2$ (inputs + outputs) for a layer; rules by coordinates read the products block by block.
    """

    name = "product"
    source = (
        "Bai et al., Federated Fine-tuning of LLMs under Heterogeneous Tasks and Resources (FlexLoRA), NeurIPS 2024"
    )
    words = (
        "clients send both factors, the rule sees their product B A, and the result is cut to the rank of the adapters"
    )
    of_products = True

    def reasons(self, cell: Cell, architecture: Architecture) -> Iterator[str]:
        return why_no_products(self.name, cell, architecture)

    def rows(self, module: nn.Module, model: Tensor, updates: Tensor) -> ProductRows:
        return _CutProducts(place_pairs(module, self.find_pairs(module)), model, updates)


class _CutProducts(ProductRows):
    def put(self, vector: Tensor, stack: FactorStack, place: FactorPlaces, left: Tensor, right: Tensor) -> None:
        balance = float(stack.a.square().sum() - stack.b.square().sum()) / stack.pair.rank
        b, a = cut(left, right, stack.pair.rank, balance)
        vector[place.a] = (a - stack.a).reshape(-1).to(vector.dtype)
        vector[place.b] = (b - stack.b).reshape(-1).to(vector.dtype)


def cut(left: Tensor, right: Tensor, rank: int, balance: float) -> tuple[Tensor, Tensor]:
    """B ``[outputs, r]`` and A ``[r, inputs]``: the best approximation of ``left @ right`` with rank r.

    Both have orthogonal directions, one pair for each singular value s: of length d in A and s / d in B, with
    $d^2 - s^2 / d^2 = q$. A descent on small steps keeps $A A^T - B^T B$, so that with a constant q the next round trains as
    if the factors had never been computed anew.

    Args:
        left, right: float64 ``[outputs, k]`` and ``[k, inputs]``.
        rank: r, at most the number of inputs and of outputs.
        balance: q, in which A and B differ.
    """
    first, upper = torch.linalg.qr(left)
    second, other = torch.linalg.qr(right.T)
    x, values, y = torch.linalg.svd(upper @ other.T, full_matrices=False)
    values = values[:rank]
    lengths = ((balance + (balance**2 + 4 * values.square()).sqrt()) / 2).sqrt()
    short = torch.where(lengths > 0, values / lengths, 0.0)
    return first @ x[:, :rank] * short, lengths[:, None] * (y[:rank] @ second.T)
