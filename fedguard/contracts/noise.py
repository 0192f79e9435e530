"""What noise for differential privacy does at a server and in secure sums, and what it proves; `Noise` names the mechanism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts.audit import Epsilon
from fedguard.rng import Rng

#: What a server keeps from round to round
Carried = TypeVar("Carried", bound="NoiseState")


@dataclass(frozen=True, kw_only=True)
class PrivacyGuarantee:
    """What the noise of a training proves.

    Args:
        epsilon: with its meaning; None if nothing was released.
        why: reason why it is no guarantee; None if it is one.
        facts: content of a record about the noise: its ``mechanism``, ``noise_multiplier``, ``clip`` and number of ``rounds``,
            and what is specific to this mechanism.
    """

    epsilon: Epsilon | None
    why: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoiseState:
    """State of a server that adds noise, kept between rounds: the clipping bound of an update, and more."""

    clip: float


class ServerNoise(ABC, Generic[Carried]):
    """What a trusted server publishes of a round's updates."""

    @abstractmethod
    def start(self) -> Carried:
        """The state before the first round."""

    @abstractmethod
    def release(
        self, updates: Tensor, state: Carried, rng: Rng, weights: Tensor | None = None
    ) -> tuple[Tensor, Carried]:
        """The noisy aggregate of a round (float32 ``[d]``), and the state for the next one.

        Args:
            updates: float32 ``[n, d]``, finite; n may be 0.
            weights: float32 ``[n]``, public: weight of each clipped update; None for 1 each.
        """


class SumNoise(ABC):
    """What each client does to its input to a secure sum.

    Attributes:
        clip: largest norm of an honest client's input.
    """

    clip: float

    @abstractmethod
    def encode(self, vector: NDArray[np.floating[Any]], entropy: Callable[[int], bytes]) -> NDArray[np.int64]:
        """int64 ``[d]``: clipped, scaled, rounded and noisy."""

    @abstractmethod
    def noise_tail(self, clients: int) -> int:
        """A bound on each coordinate of these clients' noise, in ring units, exceeded with negligible probability."""

    @property
    @abstractmethod
    def fewest(self) -> int:
        """Smallest number of contributors with which a sum is opened; 0 for any number.

        Raises:
            ConfigError: not even all contributors keep the guarantee.
        """
