"""Shared by the rules that sort each coordinate and count clients by their examples."""

from __future__ import annotations

from torch import Tensor

from fedguard.contracts.claims import shares


def sort_with_weights(owner: str, block: Tensor, claims: Tensor) -> tuple[Tensor, Tensor]:
    """The values of each column in ascending order, and the weight up to and including each of them.

    Args:
        owner: name of the rule, for messages.
        block: float32 ``[n, b]``; it is not changed.
        claims: float64 ``[n]``: the number of examples that each client claims.

    Returns:
        float32 ``[n, b]``, and float64 ``[n, b]``, whose last row is 1.

    Raises:
        PreconditionError: the claims add up to 0.
    """
    ordered, places = block.sort(0)
    return ordered, shares(owner, claims)[places].cumsum(0)
