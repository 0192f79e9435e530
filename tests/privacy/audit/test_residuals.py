"""Tests of the residual noise: p-values are p-values, and each fault is seen by the check that is made for it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedguard.contracts.audit import SIGNIFICANCE, Transcript
from fedguard.privacy.audit.integers import to_normal
from fedguard.privacy.audit.residuals import residual_checks


def transcript(seed=0, rounds=6, dim=600, *, noise=2.0, clients=400, q=0.25):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, (rounds, dim)) * 1.0
    return Transcript(
        releases=truth + noise * rng.standard_normal((rounds, dim)),
        truth=truth,
        noise=noise,
        counts=rng.standard_normal(rounds),
        drawn=rng.random((rounds, clients)) < q,
        rate=q,
    )


def changed(one, **changes):
    return Transcript(**{**{name: getattr(one, name) for name in one.__dataclass_fields__}, **changes})


#: What every fault in the size of the noise fails, each in its way.
OF_NOISE = {"noise", "places", "law"}


def p_values(one):
    return {check.name: check.p_value for check in residual_checks(one)}


def failed(one):
    return {check.name for check in residual_checks(one) if not check.passed}


@pytest.mark.slow
def test_p_values_of_right_code_are_no_smaller_than_uniform():
    found = [p_values(transcript(seed)) for seed in range(300)]
    assert set(found[0]) == {*OF_NOISE, "normalizer", "rounds", "coordinates", "counts", "sampling", "draws"}
    for name in found[0]:
        values = [one[name] for one in found]
        for level in (0.02, 0.1, 0.3):
            allowed = stats.binom.ppf(0.999, len(values), level)
            assert sum(value < level for value in values) <= allowed, (name, level)
    # The normalizer's is exact.
    assert stats.kstest([one["normalizer"] for one in found], "uniform").pvalue > 0.001


def test_right_code_fails_no_check():
    assert sum(bool(failed(transcript(seed))) for seed in range(100)) <= 1  # 9 checks at 0.0001: 0.09 expected


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_noise_of_another_size(factor):
    one = transcript()
    seen_by = failed(changed(one, releases=one.truth + factor * (one.releases - one.truth)))
    assert {"noise", "places"} <= seen_by <= OF_NOISE | {"rounds"}


def test_noise_that_is_missing_in_one_round():
    one = transcript(rounds=20)
    releases = one.releases.copy()
    releases[7] = one.truth[7] + 0.7 * (one.releases - one.truth)[7]
    assert "noise" in failed(changed(one, releases=releases)) <= OF_NOISE


def test_noise_that_is_used_again_at_any_distance():
    one = transcript(rounds=12)
    releases = one.releases.copy()
    releases[9] += (one.releases - one.truth)[2] - (one.releases - one.truth)[9]
    assert failed(changed(one, releases=releases)) == {"rounds"}
    assert "rounds" in failed(changed(one, releases=one.truth + (one.releases - one.truth)[0]))


def test_a_generator_that_starts_anew_for_each_layer():
    one = transcript(dim=800)
    noise = one.releases - one.truth
    noise[:, 500:] = noise[:, :300]
    assert failed(changed(one, releases=one.truth + noise)) == {"coordinates"}


@pytest.mark.parametrize("factor", [0.8, 1.2, 2.0])
def test_a_sum_that_is_scaled(factor):
    """As by a divisor that follows who came, or a clip that is another."""
    one = transcript(rounds=30)
    assert "normalizer" in failed(changed(one, releases=one.releases + (factor - 1) * one.truth))
    assert not failed(changed(one, releases=one.releases + (factor - 1) * one.truth)) & {"rounds", "coordinates"}


def drawn_by_count(counts, clients=400):
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(clients) < count for count in counts])


@pytest.mark.parametrize("counts", [[100] * 20, [200] * 20, [0] * 10 + [200] * 10])
def test_sampling_of_another_law(counts):
    one = transcript(rounds=20)
    assert failed(changed(one, drawn=drawn_by_count(counts))) == {"sampling"}
    fixed = failed(changed(one, drawn=drawn_by_count(counts), fixed=True))
    assert fixed == (set() if counts == [100] * 20 else {"sampling"})


def test_draws_that_are_used_again_or_spare_who_was_in_the_last():
    one = transcript(rounds=20)
    again, spared = np.repeat(one.drawn[::2], 2, axis=0), one.drawn.copy()
    spared[1::2] &= ~spared[::2]
    assert failed(changed(one, drawn=again)) == {"draws"}
    assert "draws" in failed(changed(one, drawn=spared))


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
def test_p_values_of_draws_of_few_are_no_smaller_than_uniform(fixed):
    rng, values = np.random.default_rng(2), []
    for _ in range(2000):
        drawn = drawn_by_count([3] * 4, 9) if fixed else rng.random((4, 9)) < 1 / 3
        if fixed:
            drawn = np.stack([rng.permutation(row) for row in drawn])
        values.append(p_values(changed(transcript(dim=40), drawn=drawn, rate=1 / 3, fixed=fixed)))
    for name in ("sampling", "draws"):
        for level in (0.01, 0.1, 0.3):
            assert sum(value[name] < level for value in values) <= stats.binom.ppf(0.999, 2000, level), (name, level)


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.3, 3.0])
def test_noise_of_counts_of_another_size(factor):
    one = transcript(rounds=24)
    assert failed(changed(one, counts=factor * one.counts)) == {"counts"}


def test_what_is_not_finite_is_no_noise():
    one = transcript()
    assert failed(changed(one, releases=one.releases * np.nan)) == {"noise"}


def test_only_what_applies_is_checked():
    one = changed(transcript(rounds=1), drawn=None, counts=None)
    assert set(p_values(one)) == {*OF_NOISE, "normalizer", "coordinates"}
    silent = changed(one, releases=one.releases - one.truth, truth=np.zeros_like(one.truth))
    assert p_values(silent)["normalizer"] == 1.0
    assert not failed(silent)
    assert SIGNIFICANCE == 1e-4


# The law, and places.


def with_noise(one, noise):
    return changed(one, releases=one.truth + one.noise * noise)


@pytest.mark.parametrize(
    "law",
    [
        lambda rng, size: np.where(rng.random(size) < 0.5, -1.0, 1.0),
        lambda rng, size: rng.laplace(0, 0.5**0.5, size),
        lambda rng, size: rng.uniform(-(3**0.5), 3**0.5, size),
        lambda rng, size: stats.truncnorm(-3, 3).rvs(size, random_state=rng) / stats.truncnorm(-3, 3).std(),
    ],
    ids=["coin flips", "Laplace", "uniform", "cut at 3 sigma"],
)
def test_noise_of_the_right_variance_and_another_law(law):
    one = transcript(rounds=10)
    assert "law" in failed(with_noise(one, law(np.random.default_rng(3), one.releases.shape)))
    bare = changed(one, gaussian=False, bare=law(np.random.default_rng(3), 12_000))
    assert failed(bare) == {"law"}


@pytest.mark.parametrize("missing", [slice(599, 600), slice(595, 600), slice(137, 138)])
def test_coordinates_without_noise_are_named(missing):
    one = transcript(rounds=4)
    noise = ((one.releases - one.truth) / one.noise).copy()
    noise[:, missing] = 0
    (check,) = (check for check in residual_checks(with_noise(one, noise)) if check.name == "places")
    assert not check.passed
    assert f"coordinate {missing.start}" in check.words or str(missing.stop - 1) in check.words
    assert "0.000 times" in check.words


def test_a_layer_and_a_client_with_little_noise_are_named():
    rng = np.random.default_rng(5)
    noise, clients = rng.standard_normal((40, 300)), np.arange(40) % 20
    one = Transcript(releases=noise, truth=0 * noise, noise=1.0, layers=(280, 20), clients=clients)
    assert not failed(one)
    quiet = noise.copy()
    quiet[clients == 7] *= 0.7
    (check,) = (check for check in residual_checks(changed(one, releases=quiet)) if check.name == "places")
    assert not check.passed and "client 7 " in check.words and "0.7" in check.words
    quiet = noise.copy()
    quiet[:, 280:] *= 0.7
    (check,) = (check for check in residual_checks(changed(one, releases=quiet)) if check.name == "places")
    assert not check.passed and "layer 1 " in check.words


def test_noise_that_is_used_again_in_a_few_coordinates_or_follows_the_last():
    one = transcript(rounds=24)
    noise = ((one.releases - one.truth) / one.noise).copy()
    again = noise.copy()
    again[:, 590:] = again[0, 590:]
    assert "rounds" in failed(with_noise(one, again))
    following = noise.copy()
    for t in range(1, len(noise)):
        following[t] = 0.1 * following[t - 1] + 0.99**0.5 * noise[t]
    assert "rounds" in failed(with_noise(one, following))


def test_noise_that_depends_on_data():
    assert "data" not in p_values(transcript())
    assert not failed(changed(transcript(), elsewhere=1e-6))
    assert failed(changed(transcript(), elsewhere=0.5)) == {"data"}


@pytest.mark.parametrize("sigma", [0.6, 3.0, 30.0, 5000.0])
def test_integers_of_the_right_law_are_normal(sigma):
    """Skellam as a difference of Poisson variables; the discrete Gaussian by its weights."""
    rng = np.random.default_rng(6)
    skellam = rng.poisson(sigma**2 / 2, 20_000) - rng.poisson(sigma**2 / 2, 20_000)
    span = np.arange(-int(12 * sigma) - 12, int(12 * sigma) + 13)
    weights = np.exp(-0.5 * (span / sigma) ** 2)
    gaussian = rng.choice(span, 20_000, p=weights / weights.sum())
    for noise, mechanism in ((skellam, "skellam"), (gaussian, "discrete_gaussian")):
        assert stats.kstest(to_normal(noise, mechanism, sigma, rng), "norm").pvalue > 1e-3
    if sigma < 1:  # where the two differ, each fails the other's law
        assert stats.kstest(to_normal(skellam, "discrete_gaussian", sigma, rng), "norm").pvalue < 1e-6
        assert stats.kstest(to_normal(gaussian, "skellam", sigma, rng), "norm").pvalue < 1e-6
