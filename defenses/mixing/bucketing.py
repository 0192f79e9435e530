"""Bucketing (Karimireddy et al., ICLR 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import ROWS, Gram, Mixing, PositiveInt, RuleContext


@dataclass(frozen=True, kw_only=True)
class Bucketing(Mixing):
    """Deals the updates at random into buckets and hands on the means of the buckets.

    Each update is in exactly one bucket of ``size``; the last bucket may be smaller. Up to f of the $ceil(n / size)$
    means may be malicious, so the rule behind keeps the same assumed f.

    Args:
        size: s, updates in a bucket; the source recommends 2.
    """

    name = "bucketing"
    source = "Karimireddy et al., Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022"
    needs = ROWS
    breakdown = "the breakdown point of the rule behind it, on ceil(n / size) rows"
    cost = "none of its own"
    grid: ClassVar = {"size": (2, 3, 4)}

    size: PositiveInt = 2

    def rows_out(self, n: int) -> int:
        return math.ceil(n / self.size)

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        buckets = torch.split(torch.randperm(gram.n, generator=context.rng.torch()), self.size)
        matrix = torch.zeros(len(buckets), gram.n, dtype=torch.float64)
        for row, bucket in enumerate(buckets):
            # By its own size: divided by `size`, the mean of a smaller last bucket would be too short
            matrix[row, bucket] = 1 / len(bucket)
        return matrix
