"""Coordinate-wise trimmed mean by weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedguard.contracts import CoordinateRule, RuleContext, Sight
from fedguard.defenses.aggregators.by_weight import sort_with_weights


@dataclass(frozen=True, kw_only=True)
class WeightedTrimmedMean(CoordinateRule):
    """The weighted mean of each coordinate without a share of the weight at either end.

    $R(x)_k = 1/(1 - 2s) sum_i u_ik x_(i)k$ with $x_(1)k <= ... <= x_(n)k$ and $u_ik$ the part of $[s, 1 - s]$ that the
    interval of client (i) covers: each has an interval as long as its share $w_i = m_i / (sum_j m_j)$ of the claims $m_i$,
    laid end to end in the order of the values. A client at the border so keeps a part of its weight. For $s = 0$ it is the
    weighted mean, and of equal claims with $s = f/n$ the trimmed mean. It holds as long as the malicious clients claim no
    more than s together; nobody can check a claim.

    Args:
        share: s, the share of the weight that is cut off at either end; less than 0.5.
    """

    name = "weighted_trimmed_mean"
    source = "Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018; by weight here"
    needs = (Sight.EACH_UPDATE,)
    breakdown = "malicious clients with up to the share of the weight"
    cost = "O(nd log n): one sort of each column"
    reads_clients = True
    grid: ClassVar = {"share": (0.1, 0.2, 0.3, 0.4)}

    share: Annotated[float, Ge(0), Lt(0.5)] = 0.2

    def reduce(self, block: Tensor, context: RuleContext) -> Tensor:
        ordered, upto = sort_with_weights(self.name, block, context.samples)
        inside = upto.clamp(self.share, 1 - self.share)
        kept = inside.diff(dim=0, prepend=torch.full_like(inside[:1], self.share))
        trimmed: Tensor = (kept * ordered.double()).sum(0).div(1 - 2 * self.share).to(block.dtype)
        return trimmed
