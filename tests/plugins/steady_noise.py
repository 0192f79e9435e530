"""Gaussian noise at a trusted server, counted by Renyi divergences alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from fedguard.contracts import (
    Combination,
    Epsilon,
    Federation,
    Lab,
    Noise,
    NoiseState,
    PrivacyGuarantee,
    RoundReport,
    ServerNoise,
    Subject,
)
from fedguard.errors import require
from fedguard.privacy.accountants import accountant_named
from fedguard.privacy.audit.subjects import Releases
from fedguard.privacy.gaussian import gaussian_event
from fedguard.privacy.ledger import honest, shift_event, shifts, spread
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Steady(ServerNoise[NoiseState]):
    noise: SteadyNoise
    expected: int

    def start(self) -> NoiseState:
        return NoiseState(self.noise.clip)

    def release(
        self, updates: Tensor, state: NoiseState, rng: Rng, weights: Tensor | None = None
    ) -> tuple[Tensor, NoiseState]:
        shorter = updates * (state.clip / updates.norm(dim=1, keepdim=True)).clamp(max=1).nan_to_num(nan=1.0)
        if weights is not None:  # by how late each is, where nobody waits
            shorter = shorter * weights[:, None]
        drawn = torch.randn(updates.shape[1], generator=rng.torch())
        return (shorter.sum(0) + self.noise.drawn * drawn) / self.expected, state


@dataclass(frozen=True, kw_only=True)
class SteadyNoise(Noise):
    """A trusted server adds the same noise in each round.

    Args:
        clip: the largest length of an update.
        z: standard deviation of the noise over the clip.
        delta: of the guarantee.
        kept: the share of the noise that is added indeed, for a test.
    """

    name = "steady"
    source = "a test"
    unit = "client"
    added_by = "server"
    words = "a trusted server adds steady noise"
    in_time = True

    clip: Annotated[float, Gt(0)] = 0.5
    z: Annotated[float, Gt(0)] = 2.0
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-3
    kept: float = 1.0

    @property
    def drawn(self) -> float:
        return self.kept * self.z * self.clip

    def check(self, federation: Federation) -> None:
        require(federation.clients.scheme == "none", "privacy: steady noise takes all clients in each round.")

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.pipeline.rule.name != "mean":
            yield "steady noise is made for the mean. Use mean."

    def in_words(self, federation: Federation) -> str:
        return f"Privacy, steady: z = {self.z:g} among {federation.clients.total} clients."

    def at_server(self, federation: Federation) -> Steady:
        meeting = federation.meeting  # in simulated time it says how many updates there are to one aggregate
        return Steady(noise=self, expected=meeting.updates if meeting else federation.clients.expected)

    def of_mean(self, federation: Federation, dim: int) -> float:
        return self.drawn / self.at_server(federation).expected

    def epsilon(self, rounds: int) -> Epsilon:
        event = gaussian_event(
            noise_multiplier=self.z, sample_rate=1.0, steps=rounds, sampling="none", unit="client", view="the models"
        )
        return accountant_named("rdp").compose_events([event], self.delta)

    def account_privacy(self, federation: Federation, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        facts = {"mechanism": "steady", "noise_multiplier": self.z, "clip": self.clip, "rounds": len(reports)}
        if federation.meeting is None:
            return PrivacyGuarantee(epsilon=self.epsilon(len(reports)), facts=facts)
        # Who is in which sum follows from speeds: each client's releases count as they happened, by their weights.
        most = float(spread(shifts(reports), honest(reports, federation.clients.total))["most"])
        event = shift_event(self.z, most, ()) if most else None
        return PrivacyGuarantee(
            epsilon=accountant_named("rdp").compose_events([event], self.delta) if event else None, facts=facts
        )

    def subjects(self, federation: Federation, lab: Lab) -> Iterator[Subject]:
        server = self.at_server(federation)
        yield Releases(
            name="steady noise",
            release=lambda rows, rng: server.release(rows, server.start(), rng)[0] * server.expected,
            clip=self.clip,
            noise=self.z * self.clip,
            claim=self.epsilon(1),
        )
