"""Shamir's secret sharing over the prime 2^256 + 297, the first one above every 32-byte secret.

Shamir, "How to share a secret", CACM 1979.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import lcm, prod
from operator import lshift, mul

from fedguard.errors import require
from fedguard.secagg.entropy import Entropy, system

PRIME = 2**256 + 297

#: Bytes of a share or secret on the wire; PRIME has 257 bits.
SHARE_BYTES = 33

# The largest multiple of PRIME in 33 bytes: what is at or above it is drawn again (one in 256), or the residues were biased
_UNBIASED = 2 ** (8 * SHARE_BYTES) // PRIME * PRIME


def split(
    secrets: Sequence[int], threshold: int, points: Sequence[int], entropy: Entropy = system
) -> list[tuple[int, ...]]:
    """The shares of every secret at every point: any ``threshold`` of them rebuild it, fewer reveal nothing about it.

    f(x) = s + a_1 x + ... + a_(t-1) x^(t-1) mod PRIME, with a fresh uniform f for each secret.

    Args:
        secrets: in [0, PRIME).
        threshold: t, from 1 to the number of points. With t = 1 every share is the secret itself.
        points: x of each holder, distinct, in [1, PRIME).
        entropy: random bytes for the coefficients.

    Returns:
        For each point, f(x) of each secret, in the order given.

    Raises:
        ConfigError: a threshold, point or secret out of range, or a point twice.
    """
    _check_points(points)
    require(
        1 <= threshold <= len(points),
        f"Sharing needs a threshold from 1 to the number of points, {len(points)}; got {threshold}. Lower it or add points.",
    )
    _check_values(secrets, "secret")
    drawn = iter(_uniform(len(secrets) * (threshold - 1), entropy))
    # highest power first, as Horner's scheme takes them
    polynomials = [[next(drawn) for _ in range(threshold - 1)] + [secret] for secret in secrets]
    return _evaluate_polynomials(polynomials, points)


def combine(shares: Mapping[int, int]) -> int:
    """The secret behind a set of shares, by Lagrange's formula at 0.

    s = sum_i y_i prod_(j != i) x_j / (x_j - x_i) mod PRIME.

    Nothing in the shares says how many are needed: fewer than the threshold, or a wrong one, give a wrong number.

    Args:
        shares: value y in [0, PRIME) by point x in [1, PRIME).

    Raises:
        ConfigError: no shares, or a point or value out of range.
    """
    points = tuple(sorted(shares))
    values = [shares[x] for x in points]
    _check_values(values, "share")
    total: int = sum(map(mul, _lagrange(points), values))
    return total % PRIME


def _evaluate_polynomials(polynomials: Sequence[Sequence[int]], points: Sequence[int]) -> list[tuple[int, ...]]:
    """The value of each polynomial at each point, by Horner's scheme on all of them side by side in one integer.

    Points are small, so values grow slowly and are reduced only once: f(x) < PRIME (1 + ... + x^(t-1)) <= PRIME 2^(t b) for x
    of b bits. Each value therefore stays within its own ``width`` bits.
    """
    # One multiplication of a long integer costs Python little more than one of a short one
    width = PRIME.bit_length() + max(map(len, polynomials), default=0) * max(points).bit_length()
    places = [width * i for i in range(len(polynomials))]
    columns = [sum(map(lshift, column, places)) for column in zip(*polynomials, strict=True)]
    lowest = (1 << width) - 1
    shares = []
    for x in points:
        values = 0
        for column in columns:
            values = values * x + column
        shares.append(tuple((values >> place & lowest) % PRIME for place in places))
    return shares


def _uniform(count: int, entropy: Entropy) -> list[int]:
    """Independent uniform integers below PRIME, by rejection."""
    drawn: list[int] = []
    while len(drawn) < count:
        block = entropy(SHARE_BYTES * (count - len(drawn)))
        numbers = [int.from_bytes(block[i : i + SHARE_BYTES], "little") for i in range(0, len(block), SHARE_BYTES)]
        drawn += [number % PRIME for number in numbers if number < _UNBIASED]
    return drawn


@lru_cache(maxsize=256)
def _lagrange(points: tuple[int, ...]) -> tuple[int, ...]:
    """prod_(j != i) x_j / (x_j - x_i) mod PRIME for every i. Cached, since points are public.

    Over the common denominator of all, a single modular inverse is enough for the whole row.
    """
    _check_points(points)
    # Exact integers, not residues: lcm and its quotients need divisibility, and points are too small for them to grow much
    denominators = [x * prod(other - x for other in points if other != x) for x in points]
    common = lcm(*denominators)
    scale = prod(points) * pow(common, -1, PRIME) % PRIME
    return tuple(scale * (common // denominator) % PRIME for denominator in denominators)


def _check_points(points: Sequence[int]) -> None:
    require(len(points) > 0, "Sharing needs at least one point; got none.")
    outside = [x for x in points if not 1 <= x < PRIME]
    require(not outside, f"Points must lie in [1, PRIME), since the value at 0 is the secret; got {outside[:3]}.")
    require(len(set(points)) == len(points), "Points must be distinct; one is given twice. Give each holder its own.")


def _check_values(values: Sequence[int], what: str) -> None:
    """Check the range of values. The error names positions only, since values are secret."""
    outside = [i for i, value in enumerate(values) if not 0 <= value < PRIME]
    require(not outside, f"Every {what} must lie in [0, 2^256 + 297); number {outside[:1]} does not.")
