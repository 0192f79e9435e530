"""A group of one client and many puppets (Douceur, IPTPS 2002)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.attacks.protocol.means.inputs import draw_fixed_point, to_signed_integers
from fedguard.attacks.protocol.means.relay import Peer, Relay
from fedguard.secagg.contest import Arena, Claim, Noise, ProtocolAttack
from fedguard.secagg.entropy import Entropy
from fedguard.secagg.masks import RingVector
from fedguard.secagg.session import SessionConfig


@dataclass(frozen=True, kw_only=True)
class Sybils(ProtocolAttack):
    """All clients of a session but one are the server's own; it subtracts what they put in.

    They follow the protocol. Without noise the rest is the victim's input. With distributed noise it is the input plus the
    victim's own part of the noise; n - A clients were meant to contribute noise, but the Sybils add none.

        $"noise that is left" / "noise that was planned" = 1 / sqrt(n - A)$

    Args:
        noise: standard deviation of one client's Skellam noise, in ring units.
    """

    name = "sybils"
    source = "Douceur, The Sybil Attack, IPTPS 2002"
    number: ClassVar[int] = 9
    by = "both"
    stopped_by = "nothing in the protocol: who may enter the roster is settled before it starts"
    outside = (
        "it promises something against the share of colluders that it was set up for, and all but one collude here"
    )
    colluders: ClassVar[int] = 7
    length: ClassVar[int] = 256

    noise: float = 2.0**12

    def draw(self, config: SessionConfig, entropy: Entropy) -> RingVector:
        return draw_fixed_point(config, entropy)

    def mount(self, arena: Arena) -> Claim:
        (victim,) = arena.honest
        plain, noisy = self._rest(arena, 1, None), self._rest(arena, 2, skellam(self.noise))
        contributors = arena.parameters.clients - arena.parameters.corrupted
        left = float(np.sqrt(np.mean(np.square(to_signed_integers(noisy - plain), dtype=np.float64))))
        planned = self.noise * math.sqrt(contributors)
        figures = {
            "sybils": len(arena.colluders),
            "colluders_withstood": arena.parameters.corrupted,
            "input_rms": float(np.sqrt(np.mean(np.square(to_signed_integers(plain), dtype=np.float64)))),
            "noise_planned": planned,
            "noise_left_rms": left,
            "noise_left_expected": self.noise,
        }
        story = [
            f"the server owns {len(arena.colluders)} of {arena.parameters.clients} clients, where the session withstands "
            f"{arena.parameters.corrupted}",
            f"the sum less what they put in: client {victim}'s input",
            f"with distributed noise: the same, off by {left:.0f} ring units, where {planned:.0f} were planned",
        ]
        return Claim(sums={frozenset({victim}): plain}, figures=figures, story=story)

    def _rest(self, arena: Arena, round: int, noise: Noise | None) -> RingVector:
        """The sum of an honest session, less the Sybils' inputs."""
        peers: dict[int, Peer] = {**arena.parties(round=round, noise=noise)}
        peers |= {sybil: arena.accomplice(sybil, round=round) for sybil in arena.colluders}
        total = Relay(arena.server(round=round), peers).run().server.total
        assert total is not None
        for sybil in arena.colluders:
            total = total - arena.input(sybil)
        return total


def skellam(sigma: float) -> Noise:
    """The difference of two Poisson variables, with standard deviation ``sigma`` (Agarwal et al., NeurIPS 2021)."""

    def draw_noise(count: int, entropy: Entropy) -> NDArray[np.int64]:
        generator = np.random.default_rng(int.from_bytes(entropy(16), "little"))
        # The variances of the two Poisson variables add up
        rate = sigma**2 / 2
        return generator.poisson(rate, count) - generator.poisson(rate, count)

    return draw_noise
