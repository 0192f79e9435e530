"""Accountants by name: Rényi divergences, numerical composition of privacy losses, and the central limit estimate."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from fedguard.contracts import Epsilon
from fedguard.errors import UnknownName
from fedguard.privacy.accounting import (
    Accountant,
    Event,
    OutOfRange,
    RDPAccountant,
    Reals,
    SubsampledGaussian,
    UnsupportedEvent,
    least,
)
from fedguard.privacy.divergences import divergences

#: Most points of the grid on which losses are composed: some seconds.
MOST_POINTS = 2**22
#: exp() of a larger loss overflows.
LARGEST_LOSS = 700.0
#: The Fourier transform rounds probabilities to about 1e-13 in all. At delta = 1e-12 opacus falls below the truth, silently.
SMALLEST_DELTA = 1e-10


class PRVAccountant(Accountant):
    """Composes privacy losses numerically, by opacus: near the true epsilon, from above by about 0.01.

        delta(e) = E[max(0, 1 - exp(e - L))],      L = L_1 + ... + L_T,    L_i = log of the two densities' ratio

    The losses of a removed unit and of an added one have different laws. Opacus composes the removal alone; here the larger
    epsilon of both counts. A replaced unit has a law of its own. If numerical errors make the bound larger than the RDP
    bound, the RDP bound is returned and named as the accountant.

    Source: Gopi, Lee and Wutschitz 2021, "Numerical composition of differential privacy" (NeurIPS); both directions: Zhu,
    Dong and Wang 2022 (AISTATS).
    """

    name = "PRV (opacus; Gopi et al. 2021)"

    def compose_events(self, events: Sequence[Event], delta: float) -> Epsilon:
        # Both are upper bounds that depend on public parameters alone, so the smaller one holds without a further price.
        found = super().compose_events(events, delta)
        if any(event.rdp is None for event in events):
            return found
        return min(found, RDPAccountant().compose_events(events, delta), key=lambda one: one.value)

    def total(self, events: Sequence[Event], delta: float) -> float:
        if delta < SMALLEST_DELTA:
            raise OutOfRange(f"delta: prv rounds too coarsely below {SMALLEST_DELTA:g}; got {delta:g}. {_USE_RDP}")
        return _prv(tuple(_gaussians(events, "prv", replaced=True).items()), delta)


class GDPAccountant(Accountant):
    """The limit of many small steps, by opacus: all of them are treated as one Gaussian mechanism.

        mu^2 = sum_i q_i^2 (exp(1 / s_i^2) - 1),      delta(e) = Phi(mu / 2 - e / mu) - exp(e) Phi(-mu / 2 - e / mu)

    Source: Bu, Dong, Long and Su 2020, "Deep learning with Gaussian differential privacy" (Harvard Data Science Review).
    """

    name = "GDP (opacus; central limit estimate of Bu et al. 2020)"
    bound = False
    caveats = ("the central limit theorem holds for these steps: an estimate, the true epsilon may be larger",)

    def total(self, events: Sequence[Event], delta: float) -> float:
        from opacus.accountants.analysis.gdp import compute_mu_poisson, delta_eps_mu, eps_from_mu

        with _quiet():
            mu = math.hypot(
                *(
                    compute_mu_poisson(steps=steps, noise_multiplier=one.noise_multiplier, sample_rate=one.sample_rate)
                    for one, steps in _gaussians(events, "gdp", replaced=False).items()
                )
            )
            # Written as a negation, so that NaN is refused too.
            if not mu < math.sqrt(LARGEST_LOSS):
                raise OutOfRange(f"gdp: epsilon is beyond what it can compute (mu = {mu:.3g}). {_USE_RDP}")
            # Opacus searches for a change of sign on [0, 500]; if delta(0) is small enough there is none.
            if mu == 0 or delta_eps_mu(eps=0, mu=mu) <= delta:
                return 0.0
            try:
                return float(eps_from_mu(mu=mu, delta=delta))
            except ValueError as error:  # no root below 500
                raise OutOfRange(f"gdp: epsilon is larger than 500, beyond what it can compute. {_USE_RDP}") from error


ACCOUNTANTS: dict[str, Accountant] = {"rdp": RDPAccountant(), "prv": PRVAccountant(), "gdp": GDPAccountant()}


def accountant_named(name: str) -> Accountant:
    """The accountant of that name.

    Raises:
        UnknownName: there is none.
    """
    if not isinstance(name, str) or name not in ACCOUNTANTS:
        raise UnknownName("accountant", name, ACCOUNTANTS)
    return ACCOUNTANTS[name]


def tightest(delta: float) -> str:
    """The tightest accountant that resolves a delta."""
    return "rdp" if delta < SMALLEST_DELTA else "prv"


def total_epsilon(events: Sequence[Event], delta: float) -> Epsilon:
    """The epsilon of all events together, by the tightest accountant, or by RDP if the tightest one cannot count them.

    Raises:
        UnsupportedEvent: neither accountant can count them.
    """
    try:
        return accountant_named(tightest(delta)).compose_events(events, delta)
    # A failure must never lower the charge: the bound by Rényi divergences is looser, and holds.
    except (OutOfRange, UnsupportedEvent):
        return accountant_named("rdp").compose_events(events, delta)


@lru_cache(maxsize=256)
def _prv(history: tuple[tuple[SubsampledGaussian, int], ...], delta: float) -> float:
    """`PRVAccountant.total` of steps with their counts; cached, since all trials of a cell ask for the same."""
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV

    steps, counts = zip(*history, strict=True)
    removed = [PoissonSubsampledGaussianPRV(one.sample_rate, one.noise_multiplier) for one in steps]
    laws = [_ReplacementLoss(law) if one.replaced else law for law, one in zip(removed, steps, strict=True)]
    # One unit is in the data of all steps or of none, so directions never mix: two compositions are enough.
    directions = [laws]
    if any(one.sample_rate < 1 and not one.replaced for one in steps):  # else both are the same
        directions.append([law if isinstance(law, _ReplacementLoss) else _AdditionLoss(law) for law in laws])
    with _quiet():
        return max(_compose_losses(losses, list(counts), delta) for losses in directions)


class _AdditionLoss:
    """Privacy loss of an added unit: log(Q / M) under Q, where a removed one has log(M / Q) under M.

        Q = N(0, s^2),  M = (1 - q) Q + q N(1, s^2),      L(x) = -log(1 - q + q exp((2 x - 1) / (2 s^2)))

    L falls as x grows, and is below -log(1 - q), so P[L <= t] = P[x >= s^2 log((exp(-t) - 1 + q) / q) + 1 / 2].
    """

    def __init__(self, removed: Any) -> None:
        self.sample_rate, self.noise_multiplier = removed.sample_rate, removed.noise_multiplier

    def cdf(self, t: Reals) -> Reals:
        from scipy.special import ndtr

        # A small q divides the difference exp(-t) - 1, which cancels near t = 0, where most losses are: hence expm1.
        s, ratio = self.noise_multiplier, 1 + np.expm1(-t) / self.sample_rate
        x = s**2 * np.log(np.maximum(ratio, 0)) + 0.5  # minus infinity where no x has a larger loss
        below: Reals = ndtr(-x / s)
        return below


class _ReplacementLoss:
    """Privacy loss of a unit that is replaced in a sample of fixed size: the law behind a bound on all hockey-sticks.

        H_a(P', Q') = H_a((1 - q) Q + q P, Q) for a >= 1,    1 - a + a H_(1/a)(P', Q') for a < 1

    P is the release that surely holds the unit, Q the release that holds the other one in its place. With
    b = 1 + (a - 1) / q, q H_b(P, Q) bounds the divergence of the samples (Balle, Barthe and Gaboardi 2018, Theorem 11): the
    first line. Neighbors may be exchanged: the second line. The bound is convex in a, so some pair of releases attains it, and
    this pair dominates under composition (Zhu, Dong and Wang 2022, Theorem 10 and Proposition 30). P[L <= t] =
    1 + H' e^t - H at a = e^t is the distribution function of a removed unit for t >= 0 and of an added one for t < 0; the
    remaining mass is at 0.
    """

    def __init__(self, removed: Any) -> None:
        self._removed, self._added = removed, _AdditionLoss(removed)
        self.sample_rate, self.noise_multiplier = removed.sample_rate, removed.noise_multiplier

    def cdf(self, t: Reals) -> Reals:
        # Opacus discretizes by differences of the distribution function, so this law needs no density.
        below: Reals = np.where(t < 0, self._added.cdf(t), self._removed.cdf(t))
        return below


def _compose_losses(losses: Sequence[Any], counts: list[int], delta: float) -> float:
    """Opacus' bound on the epsilon of ``losses`` with their ``counts``: `PRVAccountant.get_epsilon` with given losses."""
    from opacus.accountants.analysis.prv import (
        Domain,
        TruncatedPrivacyRandomVariable,
        compose_heterogeneous,
        discretize,
    )

    errors = {"eps_error": 0.01, "delta_error": delta / 1000}  # opacus' defaults
    try:
        reach = _domain_size(losses, counts, **errors)
        if any(isinstance(one, _ReplacementLoss) for one in losses):  # opacus assumes Poisson samples
            reach = max(reach, _reach(losses, counts, reach, errors["delta_error"] / 4) + 3)
        # Refused before opacus allocates the grid; NaN is refused too.
        if not reach < LARGEST_LOSS:
            raise OutOfRange(f"prv: epsilon is too large for it, its bound by rdp being about {reach:.4g}. {_USE_RDP}")
        mesh = 0.01 / math.sqrt(sum(counts) * math.log(12 / errors["delta_error"]) / 2)
        if not 2 * reach / mesh < MOST_POINTS:
            raise OutOfRange(
                f"prv: {sum(counts)} steps with losses up to {reach:.4g} need {2 * reach / mesh:.2g} points, and it takes "
                f"at most {MOST_POINTS}. {_USE_RDP}"
            )
        # The transform wraps around: a sum of losses beyond the reach would count at the other end, as a small one. The reach
        # leaves that no more than the error of delta.
        domain = Domain.create_aligned(-reach, reach, mesh)
        truncated = [TruncatedPrivacyRandomVariable(one, domain.t_min, domain.t_max) for one in losses]
        composed = compose_heterogeneous([discretize(one, domain) for one in truncated], counts)
        # [2] is the upper bound; the estimate before it may be below the true epsilon.
        epsilon = float(composed.compute_epsilon(delta, errors["delta_error"], errors["eps_error"])[2])
    # Opacus raises these if the grid misses the mean of a loss, or if rounding reaches delta.
    except (RuntimeError, ValueError, OverflowError) as error:
        raise OutOfRange(f"prv: its arithmetic fails here ({str(error).rstrip('.')}). {_USE_RDP}") from error
    if math.isnan(epsilon):
        raise OutOfRange(f"prv: its arithmetic fails here. {_USE_RDP}")
    return max(0.0, epsilon)


def _domain_size(losses: Sequence[Any], counts: list[int], eps_error: float, delta_error: float) -> float:
    """`compute_safe_domain_size` of opacus, but divergences are computed once for all deltas."""
    from opacus.accountants import RDPAccountant as Theirs

    orders = np.array(Theirs.DEFAULT_ALPHAS)

    def epsilon(chosen: Sequence[Any], counts: Sequence[int], delta: float) -> float:
        def rdp(at: Reals) -> Reals:
            each = [divergences(one.sample_rate, one.noise_multiplier, at) for one in chosen]
            total: Reals = np.sum([rdp * count for rdp, count in zip(each, counts, strict=True)], axis=0)
            return total

        return least(rdp, delta, orders)

    alone = (epsilon([one], [1], delta_error / (8 * sum(counts))) for one in losses)
    return max(epsilon(losses, counts, delta_error / 4), *alone, eps_error) + 3


def _reach(losses: Sequence[Any], counts: list[int], within: float, chance: float) -> float:
    """Chernoff's bound on the sum of losses cut to ``within``, which it exceeds in either direction with at most ``chance``."""
    from scipy.special import logsumexp

    edges = np.linspace(-within, within, 2**14 + 1)
    # Empty cells get a mass that no bound notices, so that logarithms stay finite.
    masses = [np.diff(one.cdf(edges)).clip(1e-300) for one in losses]

    def chernoff_bound(power: float) -> float:
        # The end of each cell with the larger moment, so that the grid errs upwards.
        ends = edges[1:] if power > 0 else edges[:-1]
        moments = [logsumexp(np.log(mass) + power * ends) for mass in masses]
        return float((np.dot(counts, moments) - math.log(chance)) / abs(power))

    # Every power gives a bound; a coarse grid of them costs reach, never validity.
    powers = np.geomspace(0.01, 1000, 40)
    return max(min(map(chernoff_bound, powers)), min(map(chernoff_bound, -powers)))


_USE_RDP = "Use the accountant rdp."


def _gaussians(events: Sequence[Event], accountant: str, *, replaced: bool) -> Counter[SubsampledGaussian]:
    """The number of steps of each kind."""
    # Composition does not depend on the order, so equal steps become one power of a transform.
    history: Counter[SubsampledGaussian] = Counter()
    for event in events:
        if event.gaussian is None or (event.gaussian.replaced and not replaced):
            raise UnsupportedEvent(
                f"{event.mechanism} with sampling {event.sampling!r}: {accountant} knows the Gaussian mechanism alone, with "
                f"Poisson sampling{', a fixed number' if replaced else ''} or none. Use the accountant rdp."
            )
        history[event.gaussian] += event.count
    return history


@contextmanager
def _quiet() -> Iterator[None]:
    """Opacus warns of logarithms of zero (at a rate of 1) and of loose orders: neither makes a result wrong here."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
