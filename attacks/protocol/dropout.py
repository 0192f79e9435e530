"""Clients that fall silent at the worst moment."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedguard.attacks.protocol.means.network import ProtocolNetwork
from fedguard.secagg.client import Client
from fedguard.secagg.codec import STEPS, Phase, read_header
from fedguard.secagg.contest import Arena, Claim, ProtocolAttack
from fedguard.secagg.masks import RingVector, add_masks


class UnprunedMaskClient(Client):
    """Planted: it masks for all who advertised keys, and does not hear that some have never shared theirs."""

    def _input(self) -> RingVector:
        vector = super()._input()
        absent = set(self._directory.neighbors[self.id]) - self._shared
        add_masks(vector, [self._pairwise_mask(v) for v in absent])
        return vector


@dataclass(frozen=True, kw_only=True)
class DropoutPatterns(ProtocolAttack):
    """Clients fall silent at each step, as many as the protocol stands and one more, or send too late.

    The server must remove the masks of dropped clients with the shares that their neighbors hold. A sum with one mask too
    few or too many is noise, and nothing about it looks wrong. So every pattern must end in the right sum or in none.

    Args:
        patterns: number of sessions in which each dropped client drops out at a step of its own.
    """

    name = "dropout"
    source = "folklore; the dropouts of Bonawitz et al., Practical Secure Aggregation ..., CCS 2017"
    number: ClassVar[int] = 18
    by = "client"
    stopped_by = "the server closes a step with a quorum or not at all, and rebuilds each secret from t checked shares"
    weak = UnprunedMaskClient
    colluders: ClassVar[int] = 4

    patterns: int = 20

    def mount(self, arena: Arena) -> Claim:
        clients, draw = range(len(arena.roster)), random.Random(arena.entropy(16))
        most = len(clients) - arena.parameters.survivors
        networks, story = [], []
        for step, phase in STEPS.items():
            ends = []
            for count in range(1, most + 2):
                networks.append(self._session(arena, dict.fromkeys(draw.sample(clients, count), phase), draw))
                ends.append(f"{count}: {_end(networks[-1])}")
            story.append(f"silent from {step} on, {'; '.join(ends)}")
        for _ in range(self.patterns):
            gone = draw.sample(clients, draw.randint(1, most + 1))
            networks.append(self._session(arena, {client: draw.choice(list(STEPS.values())) for client in gone}, draw))
        story.append(f"{self.patterns} patterns in which up to {most + 1} fall silent, each at a step of its own")
        sums = [(network.server.included, network.server.total) for network in networks]
        rounds = [(included, total) for included, total in sums if total is not None]
        figures = {"sessions": len(networks), "sums": len(rounds), "aborts": len(networks) - len(rounds)}
        return Claim(totals=rounds, figures=figures, story=story)

    def _session(self, arena: Arena, silent: Mapping[int, Phase], draw: random.Random) -> ProtocolNetwork:
        """A session with clients that drop out from a message on, or send it late, after the server has moved on."""
        late: list[bytes] = []

        def arrivals(client: int, answer: bytes) -> Iterable[bytes]:
            phase = read_header(answer).phase
            if client in silent and phase >= silent[client]:
                late.extend([answer] if draw.random() < 0.5 else [])
                return []
            overdue = [message for message in late if read_header(message).phase < phase]
            late[:] = [message for message in late if message not in overdue]
            return [*overdue, answer]

        return ProtocolNetwork.of(arena).run(arrivals)


def _end(network: ProtocolNetwork) -> str:
    if network.server.total is None:
        return type(network.errors[-1]).__name__
    return f"a sum of {len(network.server.included)}"
