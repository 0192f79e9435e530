"""Audits of the real mechanisms, whole and with a planted fault each."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from fedguard.contracts import Participation
from fedguard.errors import ConfigError, UnknownName
from fedguard.privacy.audit import METHODS, audit
from fedguard.privacy.audit.subjects import CentralLevel, Releases
from fedguard.privacy.central import AdaptiveClip, CentralDP
from fedguard.privacy.matrix import sensitivity, square_root
from fedguard.rng import Rng
from fedguard.tasks import cohort
from tests.privacy.audit import planted

SAMPLED = {"q": 0.2, "z": 1.0, "rounds": 20}

#: The first is quick; what one seed shows, the slow tests show under two more.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]

#: The checks that every kind of noise goes through.
OF_ALL = {"noise", "places", "law", "normalizer", "rounds", "data", "coordinates"}


def failing(found):
    return {check.name for check in found.checks if not check.passed}


# Right code.


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, SAMPLED])
def test_right_code_is_consistent_in_at_least_95_of_100_audits(settings):
    subject = planted.central(**settings)
    assert sum(audit(subject, seed=seed).verdict == "consistent" for seed in range(100)) >= 95


@pytest.mark.parametrize("mechanism", ["skellam", "discrete_gaussian"])
def test_shared_noise_is_consistent(mechanism):
    found = audit(planted.shared(mechanism), canaries=300)
    assert found.verdict == "consistent", found.words
    assert {check.name for check in found.checks} == OF_ALL
    assert 0.3 < found.bound.mu < 1.0


def test_private_training_is_consistent():
    found = audit(planted.private(), canaries=400)
    assert found.verdict == "consistent", found.words
    names = {check.name for check in found.checks}
    assert names == OF_ALL | {"sampling", "draws"}
    assert 0.7 < found.bound.mu < 1.5  # sqrt(32) / 2 * 0.5 = 1.4, were sampling a Gaussian of its mean


def test_correlated_noise_is_undone_and_shows_what_the_sensitivity_says():
    """mu is the sensitivity over the noise multiplier, less for canaries whose columns reach beyond the last round."""
    people, rounds, z = Participation(total=20, per_round=5, sampling="cyclic"), 16, 2.0
    coefficients = square_root(4)
    true = sensitivity(coefficients, people.participations(rounds)) / z
    subject = CentralLevel(
        mechanism=CentralDP(noise_multiplier=z, expected=5, clip=0.3, bands=4),
        clients=people,
        rounds=rounds,
        claim=planted.claim(1 / true, 1),
    )
    found = audit(subject, canaries=2000)
    assert found.verdict == "consistent", found.words
    assert 0.7 * true < found.bound.mu <= true


def test_an_adaptive_clip_is_followed():
    subject = planted.central(q=0.2, z=1.0, rounds=20)
    subject = replace(subject, mechanism=replace(subject.mechanism, clip=AdaptiveClip(initial=0.01)))
    assert audit(subject).verdict == "consistent"
    halved = planted.HalvedNoise(noise_multiplier=1.0, expected=4, clip=AdaptiveClip(initial=0.01))
    assert "noise" in failing(audit(replace(subject, mechanism=halved)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fault", "seen_by"),
    [
        (planted.NoCountNoise, "counts"),
        (planted.LittleCountNoise, "counts"),
        (planted.UncorrectedNoise, "noise"),
    ],
)
def test_faults_behind_an_adaptive_clip(fault, seen_by, seed):
    """The mechanism that is audited is the cell's: the noise of its count stays as it is among more clients."""
    subject = planted.central(fault, q=0.5, z=1.0, rounds=12)
    subject = replace(subject, mechanism=replace(subject.mechanism, clip=AdaptiveClip(initial=0.01)))
    assert subject.mechanism.bit_noise == 1.0
    assert seen_by in failing(audit(subject, canaries=200, seed=seed))


# Planted faults.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settings", [{}, SAMPLED])
@pytest.mark.parametrize(
    ("fault", "seen_by"),
    [
        (planted.HalvedNoise, "noise"),
        (planted.DoubledClip, "normalizer"),
        (planted.NoNoise, "noise"),
        (planted.ReusedSeed, "rounds"),
        (planted.PerBatchNormalizer, "normalizer"),
    ],
)
def test_faults_of_the_servers_noise(fault, seen_by, settings, seed):
    found = audit(planted.central(fault, **settings), seed=seed)
    assert found.verdict == "violated"
    assert seen_by in failing(found)


@pytest.mark.parametrize("fault", [planted.TwiceTheRate, planted.FixedSize])
def test_faults_of_the_sampling(fault):
    found = audit(planted.central(people=fault, **SAMPLED))
    assert found.verdict == "violated"
    assert failing(found) == {"sampling"}


@pytest.mark.parametrize("audits", [6, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", [planted.HalvedNoise, planted.DoubledClip])
def test_canaries_alone_show_halved_noise_and_a_doubled_clip(fault, audits):
    """All clients in each round, claimed mu = 1: epsilon from below exceeds epsilon from above in 19 audits of 20 or more."""
    subject = planted.central(fault)
    assert sum(audit(subject, seed=seed).refuted for seed in range(audits)) >= 0.95 * audits


@pytest.mark.parametrize(
    ("fault", "seen_by"),
    [
        (planted.shared_halved, "noise"),
        (planted.shared_dropped, "noise"),
        (planted.shared_doubled_clip, "normalizer"),
        (planted.shared_reused, "rounds"),
    ],
)
def test_faults_of_shared_noise(fault, seen_by):
    found = audit(fault(planted.shared()), canaries=300)
    assert found.verdict == "violated"
    assert seen_by in failing(found)


@pytest.mark.parametrize(
    ("change", "seen_by"),
    [
        (lambda plan, rng: (planted.with_level(plan, noise=0.5), rng), "noise"),
        (lambda plan, rng: (planted.with_level(plan, clip=2.0, noise=0.5), rng), "canaries"),
        (lambda plan, rng: (planted.with_level(plan, noise=1e-3), rng), "noise"),
        (lambda plan, rng: (plan, Rng(5)), "rounds"),
        (lambda plan, rng: (planted.with_private(plan, sample_rate=1.0), rng), "canaries"),
        (lambda plan, rng: (replace(plan, batch_size=130), rng), "noise"),
    ],
    ids=["halved noise", "doubled clip", "no noise", "reused seed", "twice the rate", "another divisor"],
)
def test_faults_of_private_training(change, seen_by):
    found = audit(planted.private(change), canaries=400)
    assert found.verdict == "violated"
    assert seen_by in failing(found) | ({"canaries"} if found.refuted else set())


def test_batches_of_a_fixed_size(monkeypatch):
    """The sampling of a training itself is replaced; both the training and the audit go by it."""

    def fixed(plan, size, draw, _=1.0):
        q = plan.private.sample_rate
        return np.stack([draw.permutation(size)[: round(q * size)] for _ in range(plan.private_steps(q))])

    monkeypatch.setattr(cohort, "schedule", fixed)
    assert failing(audit(planted.private(), canaries=400)) == {"sampling"}


def test_the_same_batch_in_each_step(monkeypatch):
    right = cohort.schedule
    monkeypatch.setattr(
        cohort,
        "schedule",
        lambda plan, size, draw, share=1.0: np.repeat(
            right(plan, size, draw, share)[:1], plan.private_steps(1), axis=0
        ),
    )
    assert "draws" in failing(audit(planted.private(), canaries=400))


# The verdict.


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """Scores of one Gaussian step on a Poisson sample, for more canaries than any training has."""

    name: str = "one step"
    claim: Any
    curve: Any = None
    q: float = 0.1
    z: float = 0.5

    def observe(self, included, rng):
        draw = rng.numpy()
        came = included & (draw.random(len(included)) < self.q)
        return came + self.z * draw.standard_normal(len(included)), None


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 5), marks=pytest.mark.slow)])
def test_a_sampled_mechanism_is_held_against_its_own_curve(seeds):
    """Read as a Gaussian mechanism it looks worse than it is at delta = 0.01, which must not be called a violation."""

    def curve(delta):
        return planted.claim(0.5, 1, 0.1, "poisson", delta=delta).value

    right = OneStep(claim=planted.claim(0.5, 1, 0.1, "poisson", delta=0.01), curve=curve)
    for seed in seeds:
        found = audit(right, canaries=100_000, seed=seed)
        assert found.bound.epsilon > found.claimed
        assert found.verdict == "consistent" and not found.refuted
        assert "do not contradict" in found.words
    assert audit(replace(right, curve=None), canaries=100_000).verdict == "consistent"
    assert audit(right, canaries=1000, method="fdp_one_run").verdict == "not judged"
    # A larger sample, or less noise, it tells from it.
    assert audit(replace(right, q=0.3), canaries=100_000).refuted
    assert audit(replace(right, z=0.35), canaries=100_000).refuted


def honest(rows, rng):
    lengths = rows.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return (rows * (1 / lengths).clamp(max=1)).sum(0) / 50 + torch.randn(rows.shape[1], generator=rng.torch()) / 50


def test_code_of_ones_own_is_a_function():
    own = Releases(release=honest, clip=1.0, noise=1.0, divisor=50, claim=planted.claim(1.0, 1))
    assert audit(own).verdict == "consistent"
    assert audit(replace(own, release=lambda rows, rng: 2 * honest(rows, rng))).verdict == "violated"
    quiet = audit(replace(own, claim=None))
    assert quiet.verdict == "no guarantee claimed" and quiet.claimed is None
    assert audit(replace(own, claim=replace(own.claim, value=math.inf))).verdict == "no guarantee claimed"
    # Canaries that are not many enough for a last group of its own size.
    odd = audit(replace(own, clients=70, dim=90), canaries=100)
    assert odd.verdict == "consistent"


def test_epsilon_of_the_verdict_is_one_of_two_bounds():
    found = audit(planted.central())
    assert found.bound.epsilon < found.claimed
    assert found.bound.delta == planted.DELTA
    assert f"{found.claimed:.4g}" in found.words
    assert "relation: add/remove" in found.claim
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert told["verdict"] == "consistent"
    assert told["bound"]["kind"] == "bound"
    assert [check["passed"] for check in told["checks"]] == [True] * len(OF_ALL)


def test_an_estimate_is_no_verdict():
    found = audit(planted.central(), method="one_shot")
    assert found.verdict == "not judged"
    assert "proves nothing" in found.words
    assert audit(planted.central(planted.HalvedNoise), method="one_shot").verdict == "violated"  # by the residuals


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_on_every_kind_of_subject(method):
    for subject in (planted.central(), planted.shared(clients=10, rounds=1), planted.private(rounds=1)):
        found = audit(subject, method=method, canaries=200)
        assert found.bound.method == method
        assert math.isfinite(found.bound.epsilon)


def test_the_same_seed_gives_the_same_audit():
    assert audit(planted.central(), seed=3) == audit(planted.central(), seed=3)
    assert audit(planted.central(), seed=3) != audit(planted.central(), seed=4)


def test_what_cannot_be_asked():
    with pytest.raises(UnknownName, match="audit method"):
        audit(planted.central(), method="gdp")
    with pytest.raises(ConfigError, match="canaries"):
        audit(planted.central(), canaries=3)
    with pytest.raises(ConfigError, match="confidence"):
        audit(planted.central(), confidence=1.0)
