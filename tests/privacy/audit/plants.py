"""Faults that are planted in the code of a training: one thing of the real classes each, for a whole audit to find.

A plant takes a monkeypatch. Laws are changed at the place where noise is drawn: in `CentralDP` before it is correlated, in the
optimizer of DP-SGD step by step, in the integer noise of a client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import laplace, norm

from fedguard import api
from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.server import Server
from fedguard.bench.audits.cells import subjects
from fedguard.bench.audits.training import training_checks
from fedguard.contracts import NoNoise, Participation
from fedguard.privacy import central as of_central
from fedguard.privacy.audit import audit
from fedguard.privacy.central import CentralDP
from fedguard.privacy.distributed import NoisyRound
from fedguard.privacy.mechanisms.discrete_gaussian import DiscreteGaussian
from fedguard.privacy.mechanisms.skellam import Skellam
from fedguard.rng import Rng
from fedguard.secagg.entropy import expand_seed
from fedguard.tasks import cohort
from fedguard.tasks.engines import private as of_private
from fedguard.tasks.engines.private import PrivateEngine
from fedguard.tasks.models.softmax import Softmax

#: Of the watched task: its biases come last.
DIM, BIASES = 260, 4
#: The client whose noise is missing.
QUIET = 7

CENTRAL = {"name": "client", "noise_multiplier": 1.0}
SHARED = {"name": "distributed", "noise_multiplier": 1.0}
POISSON = {"clients": {"total": 20, "per_round": 0.5, "sampling": "poisson"}}
SUITES = {
    "server": {"protocol": {"privacy": CENTRAL}},
    "server, Poisson": {**POISSON, "protocol": {"privacy": CENTRAL}},
    "server, bands": {
        "clients": {"total": 20, "per_round": 5, "sampling": "cyclic"},
        "protocol": {"privacy": {**CENTRAL, "noise": {"bands": 4}}},
    },
    "DP-SGD": {"protocol": {"privacy": {"name": "record", "noise_multiplier": 1.0, "sample_rate": 0.25}}},
    "clients, Skellam": {"protocol": {"secure_aggregation": "full", "privacy": SHARED}},
    "clients, discrete Gaussian": {
        "protocol": {"secure_aggregation": "full", "privacy": {**SHARED, "mechanism": "discrete_gaussian"}}
    },
}


def plan(name: str, rounds: int = 24):
    """A suite of 20 clients with one kind of noise."""
    settings = {"clients": {"total": 20}, "training": {"rounds": rounds, "batch_size": 8}, **SUITES[name]}
    return api.lay_out({"name": "planted", "seeds": [0], **settings})[1]


#: Noise over its standard deviation, float64 -> what is there instead, over the same.
Law = Callable[[np.ndarray], np.ndarray]


def coin_flips(noise):
    return np.where(noise < 0, -1.0, 1.0)


def cut(noise):
    return noise.clip(-3, 3)


def laplacian(noise):
    return laplace.isf(norm.sf(noise.clip(-8, 8))) / 2**0.5


def halved(noise):
    return noise / 2


def missing(noise):
    return 0 * noise


def last_missing(noise):
    found = noise.copy()
    found[-5:] = 0
    return found


def biases_missing(noise):
    found = noise.copy()
    if len(found) == DIM:
        found[-BIASES:] = 0
    return found


LAWS = {
    "coin flips of the right variance": coin_flips,
    "Laplace of the right variance": laplacian,
    "cut at 3 sigma": cut,
    "none on the last 5 coordinates": last_missing,
    "none on the biases": biases_missing,
    "halved": halved,
    "none": missing,
}


def at_the_server(law: Law):
    """Before it is correlated, so that the mechanism goes on as it would."""

    def plant(patch):
        release, correlated, sigma = CentralDP.release, of_central.correlate_noise, [1.0]

        def releasing(self, updates, state, rng):
            sigma[0] = self.sum_noise
            return release(self, updates, state, rng)

        def changed(fresh, past, coefficients):
            drawn = torch.from_numpy(law(fresh.double().numpy() / sigma[0]) * sigma[0]).float()
            return correlated(drawn, past, coefficients)

        patch.setattr(CentralDP, "release", releasing)
        patch.setattr(of_central, "correlate_noise", changed)

    return plant


def in_steps(law: Law):
    """In each step of DP-SGD, parameter by parameter."""

    def plant(patch):
        right = of_private._Optimizer.add_noise

        def add_noise(self):
            right(self)
            for number, parameter in enumerate(self.params):
                summed, size = parameter.summed_grad, self.noise_multiplier * self.max_grad_norm
                noise = ((parameter.grad - summed) / size).double().numpy()
                if law is biases_missing:
                    changed = 0 * noise if noise.ndim == 1 else noise
                elif law is last_missing:
                    changed = law(noise.ravel()).reshape(noise.shape) if number == len(self.params) - 2 else noise
                else:
                    changed = law(noise)
                parameter.grad = summed + torch.from_numpy(changed * size).float()

        patch.setattr(of_private._Optimizer, "add_noise", add_noise)

    return plant


def in_clients(law: Law):
    """In the integers that each client adds."""

    def plant(patch):
        for kind in (Skellam, DiscreteGaussian):

            def sample(self, count, entropy, right=kind.sample):
                noise = right(self, count, entropy)
                return np.rint(law(noise / self.sigma) * self.sigma).astype(np.int64)

            patch.setattr(kind, "sample", sample)

    return plant


def digest(*parts: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "little") >> 1


# The server's.


def seeded_by_data(patch):
    right = CentralDP.release

    def release(self, updates, state, rng):
        return right(self, updates, state, rng.child(digest(updates.numpy().tobytes())))

    patch.setattr(CentralDP, "release", release)


def seed_of_every_round(patch):
    right = CentralDP.release
    patch.setattr(CentralDP, "release", lambda self, updates, state, rng: right(self, updates, state, Rng(7)))


def doubled_clip(patch):
    right = CentralDP.release

    def release(self, updates, state, rng):
        nothing, after = right(self, updates[:0], state, rng)
        lengths = updates.norm(dim=1).clamp(min=1e-30)
        return nothing + (2 * state.clip / lengths).clamp(max=1) @ updates / self.expected, after

    patch.setattr(CentralDP, "release", release)


def one_is_not_clipped(patch):
    """The first who came."""
    right = CentralDP.release

    def release(self, updates, state, rng):
        mean, after = right(self, updates[1:], state, rng)
        return mean + updates[:1].sum(0) / self.expected, after

    patch.setattr(CentralDP, "release", release)


def per_batch_normaliser(patch):
    right = CentralDP.release

    def release(self, updates, state, rng):
        mean, after = right(self, updates, state, rng)
        return mean * self.expected / max(1, len(updates)), after

    patch.setattr(CentralDP, "release", release)


def lost_updates(patch):
    """Of the first who came."""
    right = CentralDP.release
    patch.setattr(CentralDP, "release", lambda self, updates, state, rng: right(self, updates[1:], state, rng))


def wrong_rate(patch):
    def choose(self, rng, round):
        return tuple((rng.numpy().random(self.total) < 1.6 * self.expected / self.total).nonzero()[0].tolist())

    patch.setattr(Participation, "choose", choose)


def fixed_size(patch):
    def choose(self, rng, round):
        return tuple(sorted(rng.numpy().choice(self.total, self.expected, replace=False).tolist()))

    patch.setattr(Participation, "choose", choose)


def plain_mean(patch):
    right = Server.run
    patch.setattr(
        Server,
        "run",
        lambda self, setup: right(self, setup.with_parts(protocol=replace(setup.cell.protocol, privacy=NoNoise()))),
    )


def forgotten_noise(patch):
    right = CentralDP.release
    patch.setattr(CentralDP, "release", lambda self, updates, state, rng: (right(self, updates, state, rng)[0], state))


# DP-SGD.


def one_by_one(change):
    """``change``: (plan, rng, client, its examples) -> plan and rng of that client's training."""

    def plant(patch):
        right = PrivateEngine.train

        def train(self, model, clients, schedules, plan, out, streams):
            for row, client, schedule, stream in zip(out, clients, schedules, streams, strict=True):
                level = replace(plan, private=replace(plan.private, levels=(plan.private.level(client),)))
                changed, draws = change(level, stream, client, self._parts[client])
                right(self, model, [client], [schedule], changed, row[None], [draws])

        patch.setattr(PrivateEngine, "train", train)

    return plant


def with_level(plan, clip=1.0, noise=1.0):
    ((old, z),) = plan.private.levels
    return replace(plan, private=replace(plan.private, levels=((clip * old, noise * z),)))


def batches_of(change):
    def plant(patch):
        right = cohort.schedule
        patch.setattr(cohort, "schedule", lambda plan, size, draw, _=1.0: change(right, plan, size, draw))

    return plant


def all_examples(right, plan, size, draw):
    return np.tile(np.arange(size), (plan.private_steps(plan.private.sample_rate), 1))


def batches_of_fixed_size(right, plan, size, draw):
    q = plan.private.sample_rate
    return np.stack([draw.permutation(size)[: max(1, round(q * size))] for _ in range(plan.private_steps(q))])


def examples_see_each_other(patch):
    """In the cell's own network, and nobody holds it to its contract."""
    right = Softmax.build

    def build(self, shape, classes):
        module = right(self, shape, classes)
        return torch.nn.Sequential(LessTheMean(), *module) if type(self) is Softmax and len(shape) == 3 else module

    patch.setattr(Softmax, "build", build)
    patch.setattr(of_private, "hold", lambda *_: None)


class LessTheMean(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(0)


# Clients'.


def one_client_quiet(patch):
    right, silent = Inputs.encode_update, [False]
    for kind in (Skellam, DiscreteGaussian):

        def sample(self, count, entropy, right=kind.sample):
            return right(self, count, entropy) * (not silent[0])

        patch.setattr(kind, "sample", sample)

    def encoded(self, client):
        silent[0] = client == QUIET
        try:
            return right(self, client)
        finally:
            silent[0] = False

    patch.setattr(Inputs, "encode_update", encoded)


def clients_seeded_by_data(patch):
    right = NoisyRound.encode

    def encode(self, vector, entropy):
        return right(self, vector, expand_seed(digest(vector.tobytes(), entropy(16)).to_bytes(16, "little")))

    patch.setattr(NoisyRound, "encode", encode)


def clients_seed_of_every_round(patch):
    right = NoisyRound.encode
    patch.setattr(NoisyRound, "encode", lambda self, vector, entropy: right(self, vector, expand_seed(bytes(16))))


def inputs_without_noise(patch):
    right = Inputs.__init__

    def init(self, sent, encoding, noise, *others):
        right(self, sent, encoding, None, *others)

    patch.setattr(Inputs, "__init__", init)


def clients_doubled_clip(patch):
    right = NoisyRound.encode

    def encode(self, vector, entropy):
        length = np.linalg.norm(vector.astype(np.float64))
        # As much as is beyond the clip, up to once more.
        beyond = min(max(length / self.clip - 1, 0), 1) * self.clip * self.scale / max(length, 1e-30)
        return right(self, vector, entropy) + np.rint(vector.astype(np.float64) * beyond).astype(np.int64)

    patch.setattr(NoisyRound, "encode", encode)


def one_client_lost(patch):
    right = NoisyRound.encode

    def encode(self, vector, entropy, count=[0]):  # noqa: B006  counts
        count[0] += 1
        return right(self, vector * (count[0] % 10 != 1), entropy)

    patch.setattr(NoisyRound, "encode", encode)


@dataclass(frozen=True)
class Plant:
    """A fault, and the noise in which it is planted."""

    name: str
    where: str
    plant: Callable


CHANGED = {
    "server": at_the_server,
    "server, bands": at_the_server,
    "DP-SGD": in_steps,
    "clients, Skellam": in_clients,
    "clients, discrete Gaussian": in_clients,
}
AT_SERVER = {
    "seeded by round and data": seeded_by_data,
    "seed of every round": seed_of_every_round,
    "clip x 2": doubled_clip,
    "one update is not clipped": one_is_not_clipped,
    "one update is lost": lost_updates,
}
IN_STEPS = {
    "seeded by round and data": one_by_one(
        lambda plan, rng, client, own: (plan, rng.child(digest(own.x.numpy().tobytes(), own.y.numpy().tobytes())))
    ),
    "seed of every round": one_by_one(lambda plan, rng, client, own: (plan, Rng(5))),
    "clip x 2": one_by_one(lambda plan, rng, client, own: (with_level(plan, clip=2.0, noise=0.5), rng)),
    "one of 20 clients without": one_by_one(
        lambda plan, rng, client, own: (with_level(plan, noise=1e-9 if client == QUIET else 1.0), rng)
    ),
    "another divisor": one_by_one(lambda plan, rng, client, own: (replace(plan, batch_size=10), rng)),
    "all examples in each batch": batches_of(all_examples),
    "batches of a fixed size": batches_of(batches_of_fixed_size),
    "examples see each other": examples_see_each_other,
}
IN_CLIENTS = {
    "one of 20 clients without": one_client_quiet,
    "seeded by round and data": clients_seeded_by_data,
    "seed of every round": clients_seed_of_every_round,
    "no noise in the session": inputs_without_noise,
    "clip x 2": clients_doubled_clip,
    "every tenth update is lost": one_client_lost,
}
PLANTS = [
    *(Plant(f"noise: {name}", where, changed(law)) for where, changed in CHANGED.items() for name, law in LAWS.items()),
    *(Plant(name, where, plant) for where in ("server", "server, Poisson") for name, plant in AT_SERVER.items()),
    *(Plant(name, "DP-SGD", plant) for name, plant in IN_STEPS.items()),
    *(Plant(name, where, plant) for where in list(CHANGED)[-2:] for name, plant in IN_CLIENTS.items()),
    Plant("a plain mean", "server", plain_mean),
    Plant("divided by who came", "server, Poisson", per_batch_normaliser),
    Plant("1.6 times the rate", "server, Poisson", wrong_rate),
    Plant("a fixed size", "server, Poisson", fixed_size),
    Plant("earlier noise is forgotten", "server, bands", forgotten_noise),
]


@cache
def audited_cell(where: str, rounds: int = 24):
    """The cell of a suite, and the code in it that canaries run on; its claims are reckoned once."""
    ((_, cell),) = plan(where, rounds).positions
    (subject,) = subjects(cell, 0)
    return cell, replace(subject, curve=subject.curve and cache(subject.curve))


def audited(where: str, plant: Callable | None = None, *, seed: int = 0, canaries: int = 200, rounds: int = 24):
    """The audit that `fedguard audit` makes of a suite, with a fault in the code or without."""
    cell, subject = audited_cell(where, rounds)
    with pytest.MonkeyPatch.context() as patch:
        if plant:
            plant(patch)
        return audit(subject, canaries=canaries, seed=seed, training=training_checks(cell, seed))
