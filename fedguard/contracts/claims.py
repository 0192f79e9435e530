"""How many examples clients say that they have: what may be weighed by, at whichever seat. Nobody can check a claim.

A claim that counts is a number from 0 to `MOST`. One of an honest client does, so where others come from clients they are
dropped with the update, as one that is not finite; where a caller hands them in, they are an `InputError`.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fedguard.contracts.attacks import PoisonAttack
from fedguard.contracts.returned import check_return, contract_error
from fedguard.errors import InputError, PreconditionError, brief

#: The largest claim that counts. Sums of thousands of such are finite, and one is more than there are examples anywhere.
MOST = 2.0**112


def counts(claim: float) -> bool:
    """Whether a claim is one to weigh by: NaN, infinity and what is below 0 are not."""
    return 0 <= claim <= MOST


def read_claims(claims: Any, n: int, what: str = "samples") -> tuple[float, ...]:
    """A number for each of n updates, which need not count.

    Args:
        claims: numbers in a row, of whatever kind.

    Raises:
        InputError: another number of them, or something that is no number.
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
    """The same of a caller's own, all of which count.

    Raises:
        InputError: another number of them, one that does not count, or nothing but zeros.
    """
    read = read_claims(claims, n, what)
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
    """float64 ``[n]``: ``m_i / (sum_j m_j)`` of the claims that a rule goes by, float64 ``[n]``.

    Raises:
        PreconditionError: they add up to 0.
    """
    total = claims.sum()
    if not total > 0:
        raise PreconditionError(
            f"{owner} weighs by numbers of examples, and those of the {len(claims)} updates add up to 0. Mend: use a rule that "
            "does not, such as mean."
        )
    return claims / total


def claim_samples(attack: PoisonAttack, samples: int) -> int:
    """What a malicious client says that it has, where it has ``samples``, 1 or more.

    Raises:
        ContractError: no whole number from 1 to `MOST`.
    """
    claim = check_return(attack, "claim", attack.claim(samples), int)
    if not 1 <= claim <= MOST:
        raise contract_error(attack, f"claim: expected 1 example or more, and at most 2^112; got {brief(claim)}")
    return claim


def falsify_claim(attack: PoisonAttack, claim: float) -> float:
    """The same where clients say what they like: a claim of 0, or one that does not count, stays what it is."""
    if not counts(claim) or claim == 0:
        return claim
    whole = max(1, round(claim))
    return claim * (claim_samples(attack, whole) / whole)


def as_claims(samples: Iterable[float]) -> Tensor:
    """float64 ``[n]``, of numbers however large."""
    return torch.tensor([_float(one) for one in samples], dtype=torch.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
