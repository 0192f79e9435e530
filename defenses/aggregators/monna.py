"""MoNNA's nearest-neighbor averaging (Farhadkhani et al., ICML 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Gram, NonNegativeInt, RuleContext, Sight, WeightRule
from fedguard.defenses.aggregators.ties import smallest_alike
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class MoNNA(WeightRule):
    """The mean of the n - f updates nearest to the update of one trusted client.

    $R(x) = 1/(n - f)$ times the sum over the $n - f$ nearest j to the pivot p of $x_j$, including p itself; updates that
    tie for the last places share them. In the source every node averages for itself, with its own update as the pivot and
    with worker momentum. A server has no update, so it must name a client that it trusts. If this client is malicious, no
    guarantee holds: malicious clients are drawn among all clients, so it is one of them in a share $f/n$ of the seeds. A round
    without an update of the trusted client has no pivot and is aborted; no other client replaces it.

    Args:
        trusted: number of the trusted client, from 0.

    Raises:
        PreconditionError: the trusted client sent no (finite) update in this round.
    """

    name = "monna"
    source = "Farhadkhani et al., Robust Collaborative Learning with Linear Gradient Overhead, ICML 2023"
    needs = (Sight.EACH_UPDATE,)
    min_rows = (2, 1)
    breakdown = "f < n/2, and only as long as the trusted client is honest"
    cost = "O(n^2 d): one Gram matrix"
    reads_clients = True

    trusted: NonNegativeInt = 0

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        # No other pivot in its place: a client that nobody vouches for would decide the round
        if self.trusted not in context.clients:
            raise PreconditionError(
                f"monna needs the update of client {self.trusted}, whom it trusts, and has none in this round. "
                "Let all clients take part, or set `trusted` to one that does."
            )
        pivot = context.clients.index(self.trusted)
        return smallest_alike(gram.distances_squared()[pivot], gram.n - context.f)
