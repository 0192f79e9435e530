"""Inverse-variance weights for clients with privacy levels of their own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Gram, RuleContext, Sight, WeightRule


@dataclass(frozen=True, kw_only=True)
class InverseVariance(WeightRule):
    """The average of the updates, each weighted by how little noise its client's privacy level adds.

    $R(x) = sum_i w_i x_i$ with $w_i ~ 1 / (z_i C_i)^2$ and $sum_i w_i = 1$: these weights leave the least
    noise in the average. The levels (clip $C_i$ and noise multiplier $z_i$) are public and no claims of the clients, so
    the weights reveal nothing about their data. Clients that ask for more privacy count for less. Staleness weights of a
    server in simulated time apply in addition, and do not count as less noise.
    """

    name = "inverse_variance"
    source = "inverse-variance weighting"
    needs = (Sight.EACH_UPDATE,)
    breakdown = "0: one update decides"
    cost = "one pass"
    reads_clients = True
    meets_again = True
    by_noise = True

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        precision = context.noise.double() ** -2
        return precision / precision.sum()
