"""Interface of a mechanism of integer noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedguard.errors import require
from fedguard.privacy.mechanisms.sampler import Integers, Reals
from fedguard.secagg.entropy import Entropy


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """Independent integer noise that every client adds to each coordinate before the masks.

    Args:
        sigma: noise scale of one client, in units of the grid.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    #: The noise scales for which the sampler is exact and the bound is proven.
    smallest: ClassVar[float]
    largest: ClassVar[float] = 2.0**24

    sigma: float

    def __post_init__(self) -> None:
        require(
            self.smallest <= self.sigma <= self.largest,
            f"{self.name}: expected a noise scale of one client from {self.smallest:g} to {self.largest:g} grid units; "
            f"got {self.sigma:g}. {'Raise' if self.sigma < self.smallest else 'Lower'} the encoding's bits.",
        )

    @abstractmethod
    def sample(self, count: int, entropy: Entropy) -> Integers:
        """int64 ``[count]``: one client's noise."""

    @abstractmethod
    def rdp(self, orders: Reals, *, sensitivity_l1: float, sensitivity_l2: float, contributors: int, dim: int) -> Reals:
        """Bound on the Rényi divergence of each order between the noisy sums of two neighboring inputs.

        Args:
            orders: float64 ``[k]``, each above 1.
            sensitivity_l1, sensitivity_l2: norms of the difference of the sums without noise, which are integer
                vectors, in units of the grid.
            contributors: honest clients with noise in the sum.
            dim: number of coordinates.

        Returns:
            float64 ``[k]``; infinite without contributors.
        """

    @abstractmethod
    def noise_tail(self, clients: int, beta: float) -> int:
        """A bound that the noise of ``clients`` clients on one coordinate exceeds with probability at most ``beta``."""

    def _tail(self, clients: int, beta: float, linear: float) -> int:
        """Sub-gamma tail with variance ``clients sigma^2``: ``sqrt(2 v L) + linear L`` for L = log(2 / beta)."""
        # Two-sided: beta / 2 for each tail.
        log = math.log(2 / beta)
        return math.ceil(math.sqrt(2 * clients * log) * self.sigma + linear * log)
