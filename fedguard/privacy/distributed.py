"""Distributed differential privacy: every client adds a little integer noise, and the server sees a noisy sum alone.

    z_u = R(S clip(x_u, C)) + N_u          clip to L2 norm C, scale, conditional rounding, integer noise; then the masks

Of k honest contributors with noise scale sigma each, the sum has noise of about sqrt(k) sigma against a sensitivity of a
little over S C. A client that drops out takes its noise along, and a colluder or malicious client may never have added its
own; so each round is charged with the contributors that are left. `calibration.minimum` says with how few of them it must
abort.

The norm of what is released is checked on the integers, so no rounding of floats touches the guarantee, and an orthogonal
rotation may come before: it leaves the norm alone. A sum that wraps around the ring is spoiled but no less private, for
taking it modulo 2^l works on what was private already. Secure aggregation hides computationally, so this is computational
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
from fedguard.errors import InputError, require
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
    """What a client does in one round, and what the round costs.

    Args:
        clip: C, bound on the L2 norm of an input.
        scale: S, ring units per unit of the input.
        rounding: for vectors of norm S C.
        noise: one client's, in ring units.
        relation: what neighboring inputs are.
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
        values = vector.astype(np.float64)
        with np.errstate(over="ignore"):  # refused below
            length = float(np.linalg.norm(values))
        if vector.shape != (self.rounding.dim,) or not math.isfinite(length):
            raise InputError(
                f"vector: expected {self.rounding.dim} finite numbers; got {vector.dtype} {list(vector.shape)} "
                f"of norm {length:g}."
            )
        values *= self.scale * min(1.0, self.clip / length) if length > 0 else 0.0
        return self.rounding(values, entropy) + self.noise.sample(values.size, entropy)

    def noise_tail(self, clients: int, beta: float = 2.0**-40) -> int:
        """What the noise of ``clients`` clients exceeds on some coordinate with probability at most ``beta``, in ring units."""
        return self.noise.noise_tail(clients, beta / self.rounding.dim)

    def event(self, contributors: int, count: int = 1) -> Event:
        """``count`` such rounds to whose sums ``contributors`` honest clients each added their noise.

        With "replace" an input moves from anywhere within the bound to anywhere, by twice the norm.
        """
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
    """Noise shared out among the clients of a secure sum.

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
            f"relation: expected one of {', '.join(RELATIONS)}; got {self.relation!r}.",
        )

    def for_round(self, *, contributors: int, dim: int, scale: float) -> NoisyRound:
        """One round, in which each client adds noise of scale ``z C S / sqrt(contributors)``.

        Args:
            contributors: honest clients that are expected to stay; among them the noise is shared out.
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
        """What the rounds cost together.

        Args:
            rounds: for each, the honest clients whose noise is surely in the sum: the survivors less the possible colluders.
            expected: the contributors among whom the noise was shared out.
            dim, scale: as in `for_round`.
        """
        one = self.for_round(contributors=expected, dim=dim, scale=scale)
        events = [one.event(contributors, count) for contributors, count in sorted(Counter(rounds).items())]
        return total_epsilon(events, self.delta)
