"""Code with planted faults: each breaks one thing of the real mechanisms, and claims what the right one claims."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch

from fedguard.contracts import DPSGD, LocalPlan, Participation
from fedguard.privacy.audit.subjects import CentralLevel, RecordLevel, release_distributed_noise
from fedguard.privacy.central import CentralDP
from fedguard.privacy.distributed import DistributedDP
from fedguard.privacy.gaussian import epsilon
from fedguard.rng import Rng
from fedguard.tasks import cohort
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.network import FlatNetwork

DELTA = 1e-5


@cache
def claim(z, steps, q=1.0, sampling="none", unit="client", delta=DELTA):
    """Epsilon of Gaussians on Poisson samples by the tightest accountant, against which an audit has the least room."""
    return epsilon(z, q, steps, delta, accountant="prv", unit=unit, sampling=sampling)


# The server's noise.


@dataclass(frozen=True, kw_only=True)
class HalvedNoise(CentralDP):
    @property
    def sum_noise(self):
        return super().sum_noise / 2


@dataclass(frozen=True, kw_only=True)
class DoubledClip(CentralDP):
    def release(self, updates, state, rng):
        """The same noise on updates twice as long."""
        nothing, after = super().release(updates[:0], state, rng)
        lengths = updates.norm(dim=1).clamp(min=1e-30)
        return nothing + (2 * state.clip / lengths).clamp(max=1) @ updates / self.expected, after


@dataclass(frozen=True, kw_only=True)
class ReusedSeed(CentralDP):
    def release(self, updates, state, rng):
        return super().release(updates, state, Rng(7))


@dataclass(frozen=True, kw_only=True)
class PerBatchNormalizer(CentralDP):
    def release(self, updates, state, rng):
        """Divided by how many came."""
        mean, after = super().release(updates, state, rng)
        return mean * self.expected / max(1, len(updates)), after


@dataclass(frozen=True, kw_only=True)
class NoNoise(CentralDP):
    def release(self, updates, state, rng):
        nothing, after = super().release(updates[:0], state, rng)
        return super().release(updates, state, rng)[0] - nothing, after


@dataclass(frozen=True, kw_only=True)
class NoCountNoise(CentralDP):
    factor = 0.0

    def _next_clip(self, lengths, clip, rng, weights):
        quiet = replace(self.clip, bit_noise=self.factor * self.bit_noise)
        return CentralDP._next_clip(replace(self, clip=quiet), lengths, clip, rng, weights)


@dataclass(frozen=True, kw_only=True)
class LittleCountNoise(NoCountNoise):
    factor = 0.1


@dataclass(frozen=True, kw_only=True)
class UncorrectedNoise(CentralDP):
    @property
    def sum_noise(self):
        return self.noise_multiplier


@dataclass(frozen=True, kw_only=True)
class TwiceTheRate(Participation):
    def choose(self, rng, round):
        return tuple((rng.numpy().random(self.total) < 2 * self.expected / self.total).nonzero()[0].tolist())


@dataclass(frozen=True, kw_only=True)
class FixedSize(Participation):
    def choose(self, rng, round):
        return tuple(sorted(rng.numpy().choice(self.total, self.expected, replace=False).tolist()))


def central(mechanism=CentralDP, people=Participation, *, z=4.0, q=1.0, rounds=16):
    """Audited with sampling at q; mu is about 1 by default."""
    clients = people(total=20, per_round=q, sampling="poisson")
    return CentralLevel(
        mechanism=mechanism(noise_multiplier=z, expected=clients.expected, clip=0.7),
        clients=clients,
        rounds=rounds,
        claim=claim(z, rounds, q, clients.scheme),
        curve=lambda delta: claim(z, rounds, q, clients.scheme, delta=delta).value,
    )


# Noise of clients.


def shared(mechanism="discrete_gaussian", clients=20, rounds=2, z=2**0.5):
    plan = DistributedDP(mechanism=mechanism, clip=0.7, noise_multiplier=z, delta=DELTA)
    return release_distributed_noise(plan, contributors=clients, dim=clients, scale=2.0**18 / 0.7, rounds=rounds)


def with_release(honest, release):
    return replace(honest, release=release)


def noise_of(honest, rows, rng):
    """What the noise of the given clients adds up to, with their rounding."""
    return honest.release(torch.zeros_like(rows), rng)


def shared_halved(honest):
    def release(rows, rng):
        noise = noise_of(honest, rows, rng)
        return honest.release(rows, rng) - noise / 2

    return with_release(honest, release)


def shared_dropped(honest, share=0.3):
    """The inputs of all arrive, and the noise of some does not: a sum that was split into inputs and noise."""

    def release(rows, rng):
        absent = rows[: round(share * len(rows))]
        return honest.release(rows, rng) - honest.release(torch.zeros_like(absent), rng)

    return with_release(honest, release)


def shared_doubled_clip(honest):
    def release(rows, rng):
        lengths = rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
        return honest.release(rows, rng) + (rows / lengths).sum(0) * honest.clip

    return with_release(honest, release)


def shared_reused(honest):
    return with_release(honest, lambda rows, rng: honest.release(rows, Rng(3)))


# DP-SGD.


def train(examples, model, plan, rng):
    """One client's private training, by the cohort that every trial uses."""
    width = examples.x.shape[1]
    out = torch.zeros(1, len(model))
    Cohort(FlatNetwork(Softmax(), (width,), 2, Rng(0)), [examples]).train(model, [0], plan, rng, out)
    return out[0]


def private(change=None, *, z=2.0, q=0.5, steps=4, rounds=8):
    """``change``: (plan, rng) -> what is trained instead; mu is about 1.4."""
    plan = LocalPlan(lr=0.1, batch_size=100, epochs=None, steps=steps, private=DPSGD(sample_rate=q, levels=((1.3, z),)))

    def faulty(examples, model, plan, rng):
        return train(examples, model, *change(plan, rng))

    return RecordLevel(
        train=faulty if change else train,
        batches=lambda plan, size, draw: cohort.schedule(plan, size, draw),
        plan=plan,
        rounds=rounds,
        claim=claim(z, steps * rounds, q, "poisson", "record"),
        curve=lambda delta: claim(z, steps * rounds, q, "poisson", "record", delta).value,
    )


def with_private(plan, **changes):
    return replace(plan, private=replace(plan.private, **changes))


def with_level(plan, clip=1.0, noise=1.0):
    """Clip and noise multiplier times these."""
    ((old, z),) = plan.private.levels
    return with_private(plan, levels=((clip * old, noise * z),))
