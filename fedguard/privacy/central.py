"""Client-level differential privacy at a trusted server: DP-FedAvg (McMahan et al., ICLR 2018).

    R = (sum_i min(1, C / |x_i|) x_i + N(0, (z C)^2 I)) / (q N)

The sum is divided by the public q N and never by the number of updates that arrived. A client that drops out, or sends values
that are not finite, counts as zeros. A round without updates releases noise. Updates of malicious clients are clipped too.

A clip may follow a quantile gamma of the lengths (Andrew et al., NeurIPS 2021):

    C <- C exp(-lr (b - gamma)),  b = 1/2 + (sum_i (1[|x_i| <= C] - 1/2) + N(0, s_b^2)) / (q N)

One client moves the sum by C and the count by 1/2. So noise of z_d C on the sum with z_d = (z^-2 - (2 s_b)^-2)^(-1/2) makes
both together one Gaussian mechanism with the multiplier z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypedDict

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from fedguard.contracts import (
    Epsilon,
    Gram,
    Mixing,
    NoiseState,
    Participation,
    RuleContext,
    ServerNoise,
    Sight,
)
from fedguard.errors import require
from fedguard.privacy.accountants import total_epsilon
from fedguard.privacy.accounting import Event
from fedguard.privacy.gaussian import gaussian_event
from fedguard.privacy.ledger import shift_event
from fedguard.privacy.matrix import correlate_noise, sensitivity, square_root
from fedguard.privacy.planned import ASSUMPTIONS
from fedguard.rng import Rng


class SamplingSchedule(TypedDict):
    sample_rate: float
    steps: int
    sampling: str


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """A clip that follows a quantile of the updates' lengths by a noisy count (Andrew et al., NeurIPS 2021).

    Args:
        quantile: target share of the updates that are shorter than the clip.
        initial: the clip of the first round.
        lr: step size of its logarithm.
        bit_noise: standard deviation of the noise on the count; None takes a twentieth of the expected clients as the source
            does, but no less than the noise multiplier.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    quantile: Annotated[float, Gt(0), Lt(1)] = 0.5
    initial: Annotated[float, Gt(0)] = 0.1
    lr: Annotated[float, Gt(0)] = 0.2
    bit_noise: Annotated[float, Gt(0)] | None = None


@dataclass(frozen=True)
class CentralState(NoiseState):
    """State with the noise of the last rounds over the clip, the latest first."""

    past: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CentralDP(ServerNoise[CentralState]):
    """The server's side of DP-FedAvg.

    Args:
        noise_multiplier: z, standard deviation over the clip of the noise that is drawn in a round.
        expected: q N, the expected number of clients in a round.
        clip: C, or how it is found.
        bands: b, over how many rounds noise is correlated; with more than one the clip is fixed.
    """

    noise_multiplier: float
    expected: int
    clip: float | AdaptiveClip
    bands: int = 1

    @property
    def bit_noise(self) -> float:
        """s_b, for an adaptive clip."""
        # A fixed clip needs no count: infinite noise on it takes nothing of the budget, and z_d is z.
        given = self.clip.bit_noise if isinstance(self.clip, AdaptiveClip) else math.inf
        return max(self.expected / 20, self.noise_multiplier) if given is None else given

    @property
    def sum_noise(self) -> float:
        """z_d, for an adaptive clip; z for a fixed one.

        Raises:
            ConfigError: the count alone exceeds the budget that the noise multiplier allows.
        """
        left = self.noise_multiplier**-2 - (2 * self.bit_noise) ** -2
        require(
            left > 0,
            f"clip.bit_noise: expected more than half of the noise multiplier {self.noise_multiplier:.4g}, for the count is "
            f"charged too; got {self.bit_noise:g}.",
        )
        return 1 / math.sqrt(left)

    def start(self) -> CentralState:
        return CentralState(self.clip.initial if isinstance(self.clip, AdaptiveClip) else self.clip)

    def release(
        self, updates: Tensor, state: CentralState, rng: Rng, weights: Tensor | None = None
    ) -> tuple[Tensor, CentralState]:
        """The noisy mean of a round (float32 ``[d]``), and what is carried on; see `ServerNoise`."""
        # float64, since squares of float32 overflow from 2e19 on, and a length of infinity would erase the row.
        lengths = updates.double().norm(dim=1)
        # Streams of their own, so that no draw shifts with the number of updates: with the same seed the noise must be the same
        # whatever the data.
        noise = self.sum_noise * torch.randn(updates.shape[1], generator=rng.child("noise").torch())
        noise = correlate_noise(noise, state.past, square_root(self.bands))
        each = torch.ones(len(updates)) if weights is None else weights
        # Clipped before it is weighted, so that a client moves the sum by its weight times C. For a row of zeros C / 0 is
        # infinite, and the clamp makes it 1.
        total = (state.clip / lengths).clamp(max=1).nan_to_num(nan=1.0).to(updates.dtype).mul(each) @ updates
        # Noise is carried on in clips, without C; with more than one band the clip is fixed.
        carried = CentralState(self._next_clip(lengths, state.clip, rng, each), (noise, *state.past)[: self.bands - 1])
        return (total + state.clip * noise) / self.expected, carried

    def _next_clip(self, lengths: Tensor, clip: float, rng: Rng, weights: Tensor) -> float:
        if not isinstance(self.clip, AdaptiveClip):
            return clip
        # Less a half each, so that a client moves the count by 1/2 and not by 1: half the sensitivity for the same information.
        count = float((lengths <= clip).double() @ weights.double()) - float(weights.double().sum()) / 2
        below = 0.5 + (count + self.bit_noise * rng.child("count").numpy().standard_normal()) / self.expected
        # The next clip follows from the noisy count alone and is public: post-processing.
        return clip * math.exp(-self.clip.lr * (below - self.clip.quantile))

    def event(self, clients: Participation, rounds: int) -> Event:
        """``rounds`` rounds as an event; with correlated noise they are a single release."""
        assumptions: tuple[str, ...] = (*ASSUMPTIONS, "the server is trusted: nobody else sees an update")
        if self.bands > 1:
            k = clients.participations(rounds)
            # Orthogonal columns of C, and with them the sensitivity, rest on this separation.
            assumptions += (f"a client takes part in at most {k} rounds, {self.bands} or more from one to the next",)
        return gaussian_event(
            noise_multiplier=self.noise_multiplier / sensitivity_over(rounds, clients, self.bands),
            **schedule(clients, rounds, self.bands),
            unit="client",
            view="the published models",
            assumptions=assumptions,
        )

    def account_rounds(self, clients: Participation, rounds: int, delta: float) -> Epsilon:
        """The epsilon of ``rounds`` rounds at ``delta``."""
        return total_epsilon([self.event(clients, rounds)], delta)

    def account_shift(self, shift: float, delta: float) -> Epsilon:
        """The epsilon of noisy sums that one client moves by ``shift`` clips together; see `fedguard.privacy.ledger`."""
        trusted = "the server is trusted: nobody else sees an update"
        return total_epsilon([shift_event(self.noise_multiplier, shift, (*ASSUMPTIONS, trusted))], delta)


def sensitivity_over(rounds: int, clients: Participation, bands: int) -> float:
    """Sensitivity, in clips, of what is charged as one release: the sum of a round, or all correlated rounds."""
    return sensitivity(square_root(bands), clients.participations(rounds)) if bands > 1 else 1.0


def schedule(clients: Participation, rounds: int, bands: int) -> SamplingSchedule:
    """Sampling of the clients in the terms of `gaussian_event`."""
    if bands > 1:
        # All rounds are one Gaussian release of C X, charged once and without amplification.
        return {"sample_rate": 1.0, "steps": 1, "sampling": clients.scheme}
    # Cyclic turns need equal groups, which suites enforce; else some client would take part more often than its share.
    return {"sample_rate": clients.expected / clients.total, "steps": rounds, "sampling": clients.scheme}


@dataclass(frozen=True, kw_only=True)
class ServerClipping(Mixing):
    """The clipping of the mechanism as colluders know it: each row is shortened to the clip."""

    name = "clipped_by_server"
    needs = (Sight.NOTHING,)

    bound: float

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        return torch.diag((self.bound / gram.norms()).clamp(max=1).nan_to_num(nan=1.0))
