"""Missing noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, log_ndtr

from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.privacy.calibration import minimum
from fedguard.privacy.distributed import DistributedDP
from fedguard.secagg.client import Client
from fedguard.secagg.codec import Phase, read_header
from fedguard.secagg.contest import Arena, Claim, Party, ProtocolAttack
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig, SessionPolicy
from fedguard.secagg.simulation import Settings

PLAN = DistributedDP(clip=1.0, noise_multiplier=1.0, delta=1e-5)
#: Ring units per unit of an input, and the largest epsilon of a round.
SCALE, TARGET = 4096.0, 6.0


class NoiselessClient(Client):
    """A colluder that adds no noise: inputs are zeros in this scene, so it sends zeros."""

    def _input(self) -> RingVector:
        return self._config.zeros()


class HalfNoiseClient(Client):
    """Planted: it adds half the noise. Inputs are zeros in this scene, so noise is all there is to halve."""

    def _input(self) -> RingVector:
        return (super()._input().view(np.int32) // 2).view(np.uint32)


@dataclass(frozen=True, kw_only=True)
class WithheldNoise(ProtocolAttack):
    """Colluders add no noise, and the server lets honest clients drop out with theirs, down to the fewest that are allowed.

    Noise is distributed over the honest clients that are expected to stay; with k of them the sum has noise of $sqrt(k)$
    parts. The inputs are known here (zeros), as differential privacy allows, so the sum contains only noise, and its spread
    s is measured. A Gaussian of that spread would give the $epsilon$ of

        $delta = Phi(C / (2s) - epsilon s / C) - e^epsilon Phi(-C / (2s) - epsilon s / C)$

    and no accountant may charge less. An accountant that counts colluders among the contributors does.
    """

    name = "withheld_noise"
    source = "Kairouz et al., ICML 2021, on dropouts; Balle and Wang, ICML 2018, for the epsilon of a Gaussian"
    number: ClassVar[int] = 15
    by = "both"
    stopped_by = (
        "the accountant counts survivors less all who may collude, so epsilon rises; below the calibrated minimum of them "
        "the clients abort"
    )
    weak = HalfNoiseClient
    clients: ClassVar[int] = 12
    colluders: ClassVar[int] = 4
    length: ClassVar[int] = 4096
    settings: ClassVar[Settings] = Settings(colluding=1 / 3, dropping=0.25)

    def mount(self, arena: Arena) -> Claim:
        cheats, expected = len(arena.colluders), len(arena.honest)
        fewest = minimum(PLAN, epsilon=TARGET, rounds=1, expected=expected, dim=arena.config.length, scale=SCALE)
        careful = replace(arena.config, quorum=max(arena.config.quorum, fewest + cheats))
        story = [
            f"noise for {expected} contributors; epsilon may be {TARGET:g}, so {fewest} must be left besides {cheats} colluders"
        ]
        network = self._session(arena, arena.config, careful.quorum, 0)
        story.append(f"the server asks for a quorum of {arena.config.quorum}: {_kinds(network)}")
        figures, epsilons = {"fewest_contributors": float(fewest), "noise_multiplier": PLAN.noise_multiplier}, []
        for missing in range(len(arena.roster) - arena.config.quorum + 1):
            network = self._session(arena, careful, careful.quorum, missing)
            words, server = f"{cheats} colluders add no noise, {missing} honest clients drop out:", network.server
            if server.total is None:
                story.append(f"{words} {_kinds(network)}")
                continue
            worth = worth_at_best(server.total, SCALE * PLAN.clip, PLAN.delta)
            survivors = len(server.included)
            charged, careless = (self._compute_epsilon(arena, count) for count in (survivors - cheats, survivors))
            epsilons.append((worth, charged))
            figures[f"epsilon_worth_{missing}_missing"] = worth
            figures[f"epsilon_charged_{missing}_missing"] = charged
            figures[f"epsilon_charged_{missing}_missing_if_colluders_count"] = careless
            worths = f"worth epsilon = {worth:.2f} at best, charged {charged:.2f}; {careless:.2f} if colluders counted"
            story.append(f"{words} {worths}")
        return Claim(epsilons=epsilons, figures=figures, story=story)

    def _session(self, arena: Arena, config: SessionConfig, quorum: int, missing: int) -> ProtocolNetwork:
        """A session in which the first honest clients drop out before their input; the others insist on a quorum."""
        one = PLAN.for_round(contributors=len(arena.honest), dim=config.length, scale=SCALE)

        def noise(count: int, entropy: Entropy) -> NDArray[np.int64]:
            return one.encode(np.zeros(count), entropy)

        def arrivals(client: int, answer: bytes) -> Iterable[bytes]:
            silent = client < missing and read_header(answer).phase >= Phase.MASKED
            return [] if silent else [answer]

        policy = replace(SessionPolicy.like(arena.config), quorum=quorum)
        peers: dict[int, Party | Client] = {**arena.parties(policy=policy, idle=True, noise=noise)}
        for cheat in arena.colluders:
            peers[cheat] = arena.accomplice(cheat, kind=NoiselessClient)
        return ProtocolNetwork(arena.server(config=config), peers).run(arrivals)

    def _compute_epsilon(self, arena: Arena, contributors: int) -> float:
        spent = PLAN.account_rounds([contributors], expected=len(arena.honest), dim=arena.config.length, scale=SCALE)
        return spent.value


def worth_at_best(noise: RingVector, sensitivity: float, delta: float) -> float:
    """Epsilon of the widest Gaussian that could have left these ring elements, at a confidence of 1 - 10^-6."""
    values = noise.view(np.int32 if noise.itemsize == 4 else np.int64).astype(np.float64)
    # chdtri inverts the upper tail: wider noise would leave so small a sum of squares with a chance below 1e-6
    widest = math.sqrt(float(values @ values) / chdtri(len(values), 1 - 1e-6))
    return gaussian_epsilon(sensitivity / widest, delta) if widest > 0 else math.inf


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The exact epsilon of Gaussian noise, ``ratio`` = sensitivity / standard deviation (Balle and Wang 2018, theorem 8)."""

    def exceeds_delta(epsilon: float) -> bool:
        near, far = ratio / 2 - epsilon / ratio, -ratio / 2 - epsilon / ratio
        # In logarithms, since e^epsilon overflows where the second term is still finite
        return float(np.exp(log_ndtr(near)) - np.exp(epsilon + log_ndtr(far))) > delta

    low, high = 0.0, 1.0
    if not exceeds_delta(low):
        return low
    while exceeds_delta(high):
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds_delta(middle) else (low, middle)
    return low


def _kinds(network: ProtocolNetwork) -> str:
    return ", ".join(dict.fromkeys(type(error).__name__ for error in network.errors))
