"""The number of examples that clients claim, by which a rule may weigh them. Nobody can check a claim.

A valid claim is a number from 0 to `MOST`. Claims of honest clients are valid, so the server drops an update with an invalid
claim, as it drops one that is not finite. An invalid claim that a caller passes in is an `InputError`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fedguard.errors import InputError, PreconditionError, brief

#: The largest valid claim: sums of thousands are finite, and no data set is as large
MOST = 2.0**112


def counts(claim: float) -> bool:
    """Whether a claim is valid as a weight: from 0 to `MOST`, which excludes NaN and infinity."""
    return 0 <= claim <= MOST


def read_claims(claims: Any, n: int, what: str = "samples") -> tuple[float, ...]:
    """Read one number for each of n updates, valid or not.

    Args:
        claims: a sequence of numbers of any type.

    Raises:
        InputError: a different number of claims, or a value that is not a number.
    """
    if isinstance(claims, Tensor):
        claims = claims.detach().cpu().tolist()
    single = claims.tolist() if hasattr(claims, "tolist") else claims
    if not isinstance(single, Iterable) or isinstance(single, str | bytes | dict):
        raise InputError(f"{what}: expected {n} numbers of examples, one for each update; got {brief(claims)}.")
    listed = [one.item() if isinstance(one, Tensor) and one.numel() == 1 else one for one in single]
    if odd := [one for one in listed if isinstance(one, bool) or not isinstance(one, numbers.Real)]:
        raise InputError(f"{what}: expected numbers of examples; got {brief(odd[0])}, a {type(odd[0]).__name__}.")
    if len(listed) != n:
        raise InputError(f"{what}: expected {n} finite numbers; got shape [{len(listed)}]. Give one for each update.")
    return tuple(map(_float, listed))


def check_claims(claims: Any, n: int, what: str = "samples") -> tuple[float, ...]:
    """Read the claims of a caller, all of which must be valid.

    Raises:
        InputError: a different number of claims, an invalid one, or only zeros.
    """
    read = read_claims(claims, n, what)
    if large := [row for row, claim in enumerate(read) if MOST < claim < math.inf]:
        raise InputError(
            f"{what}: expected at most 2^112 examples; {what}[{large[0]}] is {read[large[0]]:g}. Leave it out."
        )
    if bad := [row for row, claim in enumerate(read) if not counts(claim)]:
        raise InputError(
            f"{what}: expected finite numbers of examples, 0 or more; {what}[{bad[0]}] is {read[bad[0]]:g}. Leave it out."
        )
    if not any(read):
        raise InputError(
            f"{what}: expected a number above 0 among them; got {n} zeros, by which nothing can be weighed."
        )
    return read


def shares(owner: str, claims: Tensor) -> Tensor:
    """float64 ``[n]``: ``m_i / (sum_j m_j)`` of the claims that a rule uses, float64 ``[n]``.

    Raises:
        PreconditionError: they add up to 0.
    """
    total = claims.sum()
    if not total > 0:
        raise PreconditionError(
            f"{owner} weighs by numbers of examples, and the {len(claims)} updates' numbers add up to 0. Use a rule that "
            "does not, such as mean."
        )
    return claims / total


def as_claims(samples: Iterable[float]) -> Tensor:
    """float64 ``[n]``, also for integers too large for a float."""
    return torch.tensor([_float(one) for one in samples], dtype=torch.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
