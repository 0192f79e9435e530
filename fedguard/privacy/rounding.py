"""Conditional stochastic rounding: to whole numbers, at random, with a sure bound on the norm of the result.

    R(z)_j = floor(z_j) + Bernoulli(z_j - floor(z_j)),      repeated until  |R(z)|^2 <= B

    B = min{(c + sqrt(d))^2,  c^2 + d / 4 + sqrt(2 log(1 / beta)) (c + sqrt(d) / 2)}       for |z| <= c

Without the condition E[R(z)] = z. The condition fails with probability at most beta. So the result has the law of R(z) given
the bound, takes at most 1 / (1 - beta) tries on average, and has a bias of at most

    |E[R(z) given the bound] - z| <= beta / (1 - beta) sqrt(d)

since R(z) is never further than sqrt(d) from z. The first bound holds always.

Source: Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation" (ICML), Theorem 1 and Proposition 22.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import InputError, require
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import keystream

#: Squares of shorter vectors add up without overflow in int64.
LONGEST = 2.0**30


@dataclass(frozen=True, kw_only=True)
class ConditionalRounding:
    """Rounding of vectors with a known bound on their norm.

    Args:
        norm: c, bound on the L2 norm of the values, in units of the grid.
        dim: d.
        beta: largest probability that a try is rejected; a smaller beta has less bias and a larger bound.
    """

    norm: float
    dim: int
    beta: float

    def __post_init__(self) -> None:
        require(self.dim >= 1, f"dim: expected at least 1; got {self.dim}.")
        require(0 < self.beta < 1, f"beta: expected a probability between 0 and 1; got {self.beta}.")
        require(
            0 < self.norm <= LONGEST,
            f"norm: expected clip * scale between 0 and 2^30 grid units; got {self.norm:g}. Lower the encoding's bits.",
        )

    @cached_property
    def bound(self) -> int:
        """B rounded down, since the squared norm of a vector of integers is an integer."""
        # The first bound is sure, and smaller only for a tiny beta; tries that exceed the second one are rejected.
        root = math.sqrt(self.dim)
        likely = self.norm**2 + self.dim / 4 + math.sqrt(2 * math.log(1 / self.beta)) * (self.norm + root / 2)
        return math.floor(min((self.norm + root) ** 2, likely))

    @property
    def l2(self) -> float:
        """L2 norm that no result exceeds."""
        return math.sqrt(self.bound)

    @property
    def l1(self) -> float:
        """L1 norm that no result exceeds: at most ``sqrt(d) l2``, and ``l2^2`` since ``|n| <= n^2`` for integers."""
        return min(math.sqrt(self.dim * self.bound), self.bound)

    @property
    def bias(self) -> float:
        """Bound on the L2 distance between a vector and its mean result, in units of the grid."""
        return self.beta / (1 - self.beta) * math.sqrt(self.dim)

    def __call__(self, values: NDArray[np.float64], entropy: Entropy) -> NDArray[np.int64]:
        """int64 ``[d]``: the rounded values.

        Raises:
            InputError: not float64 ``[d]``, or longer than c, so that the bound could be out of reach.
        """
        if values.shape != (self.dim,) or not np.linalg.norm(values) <= self.norm * (1 + 1e-9):
            raise InputError(
                f"values: expected [{self.dim}] of norm at most {self.norm:g}; got {list(values.shape)} of norm "
                f"{np.linalg.norm(values):g}. Clip first."
            )
        while True:
            # Fresh draws for all coordinates: to repair some of them would change the law.
            rounded = stochastic(values, entropy)
            # In integers, exactly; `LONGEST` keeps the square within int64.
            if int(rounded @ rounded) <= self.bound:
                return rounded


def stochastic(values: NDArray[np.float64], entropy: Entropy) -> NDArray[np.int64]:
    """int64 ``[d]``: each value rounded up with the probability of its fraction, to within 2^-53; whole ones never move."""
    below = np.floor(values)
    # The upper 53 bits, so that every draw is a float64 without rounding.
    draws = np.frombuffer(keystream(entropy(32), 8 * values.size), "<u8") >> np.uint64(11)
    return below.astype(np.int64) + (draws * 2.0**-53 < values - below)
