"""Tests of the residual noise against the claimed noise, by an auditor who knows the inputs.

    r_t = (release_t - truth_t) / noise        independent N(0, 1) in every coordinate and round if the code is correct

- noise: the sum of squares is chi-square, over all rounds and in each. Detects halved or missing noise, a clip too wide.
- places: the same in each stretch of coordinates, in each layer and for each client, see `places`.
- law: the residuals have their claimed distribution, see `places`. Detects coin flips, other tails.
- normalizer: the part of r_t along truth_t is N(0, 1). Detects a divisor that depends on who took part.
- rounds: r_s and r_t are independent, by their cosine, their products at each lag, and the difference of pairs by places.
  Detects reused noise, in whole or in part.
- data: with the same seed, other data get the same noise; noise that depends on data hides nothing. Exact: correct code
  cannot fail it.
- coordinates: no release repeats itself, at any distance. Detects a generator that restarts for each layer.
- counts: the noise of the counts behind an adaptive clip is N(0, 1) as well. Detects missing or too small count noise.
- sampling: the number of clients in a round is Binomial(n, q), in mean and in spread. Detects a fixed size, another rate.
- draws: consecutive draws of a and b clients have a hypergeometric overlap. Detects a reused draw, or a draw that avoids the
  clients of the last one.

These tests detect a few percent of missing noise, where canaries need half of it to be missing. But they know the truth, and
test the claim of the mechanism instead of epsilon.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import binomtest, chi2, hypergeom, norm, t

from fedguard.contracts.audit import Check, Flags, Reals, Transcript
from fedguard.privacy.audit.places import law, places, two_sided

#: Counts of a larger variance are about Gaussian.
NEARLY_GAUSSIAN = 5.0
#: A sum of at least this many products is about Gaussian too.
MANY = 1000
#: Largest rounding error of float32 noise, over its standard deviation.
ROUNDING = 1e-2


def residual_checks(seen: Transcript) -> tuple[Check, ...]:
    """The checks that apply, each with its p-value."""
    residuals = (seen.releases - seen.truth) / seen.noise
    if not np.isfinite(residuals).all():
        return (Check(name="noise", p_value=0.0, words="what was released is not finite"),)
    aside = _beside(residuals, seen.truth)
    checks = [_noise(residuals), places(residuals, seen), _normalizer(residuals, seen.truth)]
    if seen.gaussian or seen.bare is not None:
        checks.append(law(residuals, seen))
    if len(residuals) > 1:
        checks.append(_rounds(aside, seen))
    if seen.elsewhere is not None:
        checks.append(data(seen.elsewhere))
    # One release is enough: a generator that restarts for each layer does so in every release.
    checks.append(_coordinates(aside[0]))
    if seen.counts is not None and len(seen.counts):
        checks.append(_counts(seen.counts))
    if seen.drawn is not None:
        checks.append(_sampling(seen.drawn, seen))
        if len(seen.drawn) > 1:
            checks.append(_draws(seen.drawn))
    return tuple(checks)


def _noise(residuals: Reals) -> Check:
    rounds, dim = residuals.shape
    squares = (residuals**2).sum(axis=1)
    each, total = rounds * two_sided(squares, dim).min(), two_sided(squares.sum(), rounds * dim)
    ratio = np.sqrt(squares.sum() / residuals.size)
    return Check(
        name="noise",
        p_value=float(min(1.0, 2 * min(each, total))),
        words=f"its standard deviation is {ratio:.3f} times the claimed one",
    )


def _normalizer(residuals: Reals, truth: Reals) -> Check:
    lengths = np.linalg.norm(truth, axis=1)
    some = lengths > 0
    if not some.any():
        return Check(name="normalizer", p_value=1.0, words="no input was released, so nothing can be told")
    along = (residuals[some] * truth[some]).sum(axis=1) / lengths[some]
    return Check(
        name="normalizer",
        # One-sided: a wrong divisor only adds to the part along the truth, and `noise` sees what is missing.
        p_value=float(chi2.sf((along**2).sum(), len(along))),
        words=f"along the true sum the residual is off by {np.sqrt((along**2).mean()):.2f} standard deviations",
    )


def _beside(residuals: Reals, truth: Reals) -> Reals:
    """Residuals without their part along the truth, so that a wrong clip is not mistaken for repeated noise."""
    directions = truth / np.maximum(np.linalg.norm(truth, axis=1, keepdims=True), 1e-300)
    found: Reals = residuals - (residuals * directions).sum(axis=1, keepdims=True) * directions
    return found


def data(off: float) -> Check:
    """With the same seed, releases on two data sets differ exactly by their clipped inputs.

    Args:
        off: deviation from this difference, over the standard deviation of the noise.
    """
    return Check(
        name="data",
        p_value=float(off <= ROUNDING),
        words=f"with the same seed, other data change a release by their clipped inputs, up to {off:.1g} times its noise",
    )


def _rounds(residuals: Reals, seen: Transcript) -> Check:
    """Three tests of independence, each at a third of the error."""
    if seen.clients is not None:  # a client's rounds beside each other
        residuals = residuals[np.argsort(seen.clients, kind="stable")]
    found = [_cosines(residuals), _lags(residuals)]
    half = len(residuals) // 2 * 2
    # A difference of two is N(0, 1) again; without their part along the truth they are a little shorter.
    pairs = (residuals[1:half:2] - residuals[:half:2]) * np.sqrt(0.5 * residuals.shape[1] / (residuals.shape[1] - 1))
    apart = places(pairs, replace(seen, clients=None))
    found.append((apart.p_value, f"of the difference of two rounds in a row, {apart.words}"))
    p_value, words = min(found, key=lambda one: one[0])
    return Check(name="rounds", p_value=float(min(1.0, len(found) * p_value)), words=words)


def _cosines(residuals: Reals) -> tuple[float, str]:
    rounds, dim = residuals.shape
    directions = residuals / np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1e-300)
    cosines = np.clip((directions @ directions.T)[np.triu_indices(rounds, 1)], -1 + 1e-12, 1 - 1e-12)
    largest = float(np.abs(cosines).max())
    # The cosine c of independent directions in k dimensions: c sqrt((k - 1) / (1 - c^2)) is Student's t with k - 1 degrees of
    # freedom. Here k = d - 1, for the part along the truth is gone.
    alone = 2 * t.sf(largest * np.sqrt((dim - 2) / (1 - largest**2)), dim - 2)
    return float(len(cosines) * alone), f"the noise of two rounds has a cosine of at most {largest:.3f}"


def _lags(residuals: Reals) -> tuple[float, str]:
    rounds, dim = residuals.shape
    lags = [lag for lag in range(1, rounds) if (rounds - lag) * dim >= MANY]
    if not lags:
        return 1.0, "too little noise for its correlation over rounds"
    scale = max(float((residuals**2).mean()), 1e-300)
    scores = [float((residuals[lag:] * residuals[:-lag]).sum()) / scale / np.sqrt((rounds - lag) * dim) for lag in lags]
    worst = int(np.argmax(np.abs(scores)))
    return (
        float(len(lags) * 2 * norm.sf(abs(scores[worst]))),
        f"{lags[worst]} rounds apart the noise is correlated by {scores[worst]:.1f} standard deviations",
    )


def _coordinates(residual: Reals) -> Check:
    dim = len(residual)
    spectrum = np.abs(np.fft.rfft(residual, 2 * dim)) ** 2
    products = np.fft.irfft(spectrum)[:dim]  # sum_i r_i r_(i + lag), not wrapped around
    lags = np.arange(1, dim - min(dim - 1, 30))  # of at least 30 products, so that their sum is about Gaussian
    if len(lags) == 0 or products[0] == 0:
        return Check(name="coordinates", p_value=1.0, words="too few coordinates to tell")
    scores = products[lags] / (products[0] / dim) / np.sqrt(dim - lags)
    return Check(
        name="coordinates",
        p_value=float(min(1.0, len(lags) * 2 * norm.sf(np.abs(scores).max()))),
        words=f"at no distance do coordinates agree by more than {np.abs(scores).max():.1f} standard deviations",
    )


def _counts(counts: Reals) -> Check:
    return Check(
        name="counts",
        p_value=float(two_sided((counts**2).sum(), len(counts))),
        words=f"the noise of the count has {np.sqrt((counts**2).mean()):.3f} times the claimed standard deviation",
    )


def _sampling(drawn: Flags, seen: Transcript) -> Check:
    (draws, n), q, counts = drawn.shape, seen.rate, drawn.sum(axis=1)
    if seen.fixed:
        right = bool((counts == round(n * q)).all())
        return Check(name="sampling", p_value=float(right), words=f"expected {n * q:.0f} of {n} in each draw")
    mean, variance = binomtest(int(counts.sum()), n * draws, q).pvalue, n * q * (1 - q)
    # Counts of few clients are not Gaussian, so only their mean is tested.
    spread = two_sided(((counts - n * q) ** 2).sum() / variance, draws) if variance >= NEARLY_GAUSSIAN else 1.0
    words = f"{counts.mean():.1f} of {n} were in a draw, with variance {counts.var():.1f}; expected "
    return Check(
        name="sampling",
        p_value=float(min(1.0, 2 * min(mean, spread))),
        words=words + f"{n * q:.1f}, with {variance:.1f}",
    )


def _draws(drawn: Flags) -> Check:
    n, pairs = drawn.shape[1], len(drawn) // 2
    first, second = drawn[: 2 * pairs : 2], drawn[1 : 2 * pairs : 2]
    both = int((first & second).sum())
    # Given their sizes, the overlap of two draws is hypergeometric, whatever the scheme; sums of laws by their transforms.
    length = n * pairs + 1
    spectrum = np.ones(length // 2 + 1, complex)
    for a, b in zip(first.sum(axis=1), second.sum(axis=1), strict=True):
        spectrum *= np.fft.rfft(hypergeom.pmf(np.arange(n + 1), n, a, b), length)
    law = np.maximum(np.fft.irfft(spectrum, length), 0)
    return Check(
        name="draws",
        p_value=float(min(1.0, 2 * min(law[: both + 1].sum(), law[both:].sum()))),
        words=f"{both / pairs:.1f} of {n} were in two draws in a row; expected {law @ np.arange(length) / pairs:.1f}",
    )
