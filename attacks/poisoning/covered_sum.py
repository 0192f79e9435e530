"""A wrong part that passes a check by sums, as its node lies about its share of it, too; after Gorbunov et al. (ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.partial_sum import PartialSum
from fedguard.contracts import lies
from fedguard.contracts.channels import CHECKS


@dataclass(frozen=True, kw_only=True)
class CoveredSum(PartialSum):
    """Changes the sums that it passes on, and its own share of the check on them by as much.

    $b = -(1 + scale) (n / f) mu$ is added to the partial sums of other nodes, with mu the mean of the benign sample, as in
    `partial_sum`. Under `btard` with ``sums`` all nodes compare the sum of one number per node with the part computed from
    their updates. The malicious node adjusts its own number by what it added, so the comparison holds. Only a validator
    that recomputes the node's number finds the lie.

    Args:
        scale: how far backwards.
    """

    name = "covered_sum"
    source = "Gorbunov et al., Secure Distributed Training at Scale, ICML 2022: what its validators are for"

    @lies(CHECKS)
    def cover(self, covers: bool) -> bool:
        return True
