"""Distributed differential privacy: every client adds a little integer noise, and the server sees a noisy sum alone.

    z_u = R(S clip(x_u, C)) + N_u          clip to L2 norm C, scale, conditional rounding, integer noise; then the masks

With k honest contributors of noise scale sigma each, the sum has noise of about sqrt(k) sigma against a sensitivity slightly
above S C. A client that drops out takes its noise along, and a colluder or malicious client may add none. So each round is
charged by the remaining contributors. `calibration.minimum` computes below how many of them a round must abort.

The norm is checked on the released integers, so no rounding of floats touches the guarantee. An orthogonal rotation may come
before: it preserves the norm. A sum that wraps around the ring is useless but no less private: the reduction modulo 2^l is
post-processing. Secure aggregation hides computationally, so this is computational
differential privacy.

Source: Kairouz, Liu and Steinke 2021 (ICML), Algorithm 1; Agarwal, Kairouz and Liu 2021 (NeurIPS).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Epsilon
from fedguard.errors import InputError, brief, require
from fedguard.privacy.accountants import total_epsilon
from fedguard.privacy.accounting import Event, Reals
from fedguard.privacy.mechanisms import Mechanism, mechanism_named
from fedguard.privacy.rounding import ConditionalRounding
from fedguard.secagg.entropy import Entropy, system

RELATIONS = ("add/remove", "replace")
#: As in the experiments of Kairouz et al.: a try of the rounding is kept with probability 1 - exp(-1/2) or more.
BETA = math.exp(-0.5)


@dataclass(frozen=True, kw_only=True)
class NoisyRound:
    """A client's encoding in one round, and the privacy cost of the round.

    Args:
        clip: C, bound on the L2 norm of an input.
        scale: S, ring units per unit of the input.
        rounding: for vectors of norm S C.
        noise: noise of one client, in ring units.
        relation: neighboring relation.
    """

    clip: float
    scale: float
    rounding: ConditionalRounding
    noise: Mechanism
    relation: str

    def encode(self, vector: NDArray[np.floating[Any]], entropy: Entropy = system) -> NDArray[np.int64]:
        """int64 ``[d]``: clipped, scaled, rounded and noisy; for the ring, ``.astype(np.uint32)`` wraps it.

        Raises:
            InputError: not a vector ``[d]`` of finite numbers.
        """
        # float32 has fewer digits than the grid may need: S C is up to 2^30 grid units.
        values = vector.astype(np.float64)
        with np.errstate(over="ignore"):  # refused below
            length = float(np.linalg.norm(values))
        if vector.shape != (self.rounding.dim,) or not math.isfinite(length):
            raise InputError(
                f"vector: expected {self.rounding.dim} finite numbers; got {vector.dtype} {list(vector.shape)} "
                f"of norm {length:g}."
            )
        # Rounding may leave the norm a little above S C: the guarantee rests on the check of the integers after this.
        values *= self.scale * min(1.0, self.clip / length) if length > 0 else 0.0
        return self.rounding(values, entropy) + self.noise.sample(values.size, entropy)

    def noise_tail(self, clients: int, beta: float = 2.0**-40) -> int:
        """Bound, in ring units, that the noise of ``clients`` clients exceeds anywhere with probability at most ``beta``."""
        return self.noise.noise_tail(clients, beta / self.rounding.dim)

    def event(self, contributors: int, count: int = 1) -> Event:
        """``count`` rounds, each with the noise of ``contributors`` honest clients in its sum.

        With "replace" an input moves between any two points within the bound, by twice the norm at most.
        """
        # Sensitivities of the rounded integers, not of the inputs: they are a little larger than S C.
        times = 2 if self.relation == "replace" else 1

        def rdp(orders: Reals) -> Reals:
            return self.noise.rdp(
                orders,
                sensitivity_l1=times * self.rounding.l1,
                sensitivity_l2=times * self.rounding.l2,
                contributors=contributors,
                dim=self.rounding.dim,
            )

        assumptions = [
            "secure aggregation shows the server nothing but the sum (computational differential privacy)",
            "at least the counted contributors are honest and have added their noise",
        ]
        if self.relation == "add/remove":
            assumptions.append(
                "who takes part is public: a client that is removed still counts, as zeros with its noise"
            )
        # Without a Gaussian pair, since noise on integers has other losses; so total_epsilon falls back to Rényi divergences.
        # Sampling is none: the server knows who is in the session, so nothing amplifies.
        return Event(
            mechanism=self.noise.name,
            rdp=rdp,
            count=count,
            unit="client",
            relation=self.relation,
            sampling="none",
            view="the noisy sum of each round",
            assumptions=tuple(assumptions),
        )


@dataclass(frozen=True, kw_only=True)
class DistributedDP:
    """Noise that the clients of a secure sum share.

    Args:
        mechanism: "skellam" or "discrete_gaussian".
        clip: C, bound on the L2 norm of a client's input.
        noise_multiplier: z; the noise of the expected contributors adds up to a standard deviation of z C.
        delta: of the guarantee.
        beta: of the conditional rounding.
        relation: "add/remove" or "replace".
    """

    mechanism: str = "skellam"
    clip: float
    noise_multiplier: float
    delta: float
    beta: float = BETA
    relation: str = "add/remove"

    def __post_init__(self) -> None:
        mechanism_named(self.mechanism)
        require(0 < self.clip < math.inf, f"clip: expected a positive number; got {self.clip}.")
        require(
            0 < self.noise_multiplier < math.inf,
            f"noise_multiplier: expected a positive number; got {self.noise_multiplier}. For no noise, leave privacy out.",
        )
        require(0 < self.delta < 1, f"delta: expected between 0 and 1; got {self.delta}.")
        require(0 < self.beta < 1, f"beta: expected a probability between 0 and 1; got {self.beta}.")
        require(
            self.relation in RELATIONS,
            f"relation: expected one of {', '.join(RELATIONS)}; got {brief(self.relation)}.",
        )

    def for_round(self, *, contributors: int, dim: int, scale: float) -> NoisyRound:
        """One round, in which each client adds noise of scale ``z C S / sqrt(contributors)``.

        Args:
            contributors: honest clients that are expected to stay, among which the noise is shared.
            dim: d, coordinates of an input.
            scale: S, ring units per unit of the input.

        Raises:
            ConfigError: the scale makes the noise or the inputs too small or too large for the grid.
        """
        require(contributors >= 1, f"contributors: expected at least 1; got {contributors}.")
        require(0 < scale < math.inf, f"scale: expected a positive number; got {scale}.")
        norm = self.clip * scale
        return NoisyRound(
            clip=self.clip,
            scale=scale,
            rounding=ConditionalRounding(norm=norm, dim=dim, beta=self.beta),
            noise=mechanism_named(self.mechanism)(sigma=self.noise_multiplier * norm / math.sqrt(contributors)),
            relation=self.relation,
        )

    def account_rounds(self, rounds: Sequence[int], *, expected: int, dim: int, scale: float) -> Epsilon:
        """The epsilon of all rounds together.

        Args:
            rounds: for each round, the honest clients with noise that is surely in the sum: survivors less possible colluders.
            expected: the contributors among which the noise was shared.
            dim, scale: as in `for_round`.
        """
        # The scale of each share was fixed for the expected contributors, whoever came; only their number differs by round.
        one = self.for_round(contributors=expected, dim=dim, scale=scale)
        events = [one.event(contributors, count) for contributors, count in sorted(Counter(rounds).items())]
        return total_epsilon(events, self.delta)
