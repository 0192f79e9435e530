"""The Gaussian mechanism on samples: a noisy sum of clipped contributions, of all units or of some drawn at random.

    release = sum over the drawn units of clip(x_u, C) + N(0, (s C)^2)        s: the noise multiplier

An epsilon depends on how the units are drawn and on what neighboring inputs are:

    poisson   each unit on its own with probability q     add/remove    the Rényi divergence is exact (Mironov et al. 2019)
    fixed     a fixed number without replacement          replace       bounds: of losses (Zhu et al. 2022), of divergences
                                                                        for whole orders (Wang et al. 2019)
    none      all of them                                 either        exact
    cyclic    by a public schedule, as in epochs          either        no amplification: its own steps in full
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from fedguard.arguments import is_real, is_whole
from fedguard.contracts import Epsilon
from fedguard.errors import brief, require
from fedguard.privacy.accountants import accountant_named
from fedguard.privacy.accounting import Event, Reals, SubsampledGaussian
from fedguard.privacy.divergences import divergences

RELATIONS = {
    "poisson": ("add/remove",),
    "fixed": ("replace",),
    "none": ("add/remove", "replace"),
    "cyclic": ("add/remove", "replace"),
}
_WHY_NOT = {
    "poisson": "its curve is proven for add/remove. Use relation add/remove, or sampling fixed.",
    "fixed": "with one unit more the sample is as large as before, and another unit is missing: the bound is proven for "
    "replace. Use relation replace, or sampling poisson.",
}
#: What an adversary may see: all that the mechanism releases.
VIEWS = {"record": "the model after every step", "client": "the model after every round"}


def gaussian_event(
    *,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    sampling: str,
    unit: str,
    relation: str | None = None,
    view: str,
    assumptions: tuple[str, ...] = (),
) -> Event:
    """``steps`` noisy sums of clipped contributions.

    Args:
        noise_multiplier: s, standard deviation of the noise divided by C, whatever the relation; a replaced unit moves the
            sum by 2 C, which this function accounts for.
        sample_rate: q: the probability (poisson), the share of all units (fixed, cyclic), or 1 (none).
        steps: noisy sums that are released.
        sampling: "poisson", "fixed", "none" or "cyclic".
        unit: "record" or "client".
        relation: "add/remove" or "replace"; None for the one that fits the sampling, add/remove if both do.
        view: what the adversary sees.
        assumptions: further conditions of the guarantee.

    Raises:
        ConfigError: a parameter out of its range, or a relation that the sampling does not support.
    """
    relation = _resolve_relation(noise_multiplier, sample_rate, steps, sampling, unit, relation)
    # A unit that is replaced moves the sum from C to -C at worst.
    distance = 2 if relation == "replace" else 1
    # Rounded before the ceiling: 0.07 * 100 is 7.000000000000001 in float64, and would be charged as 8.
    rate, count = (1.0, math.ceil(round(sample_rate * steps, 9))) if sampling == "cyclic" else (sample_rate, steps)
    fixed = sampling == "fixed"
    # Without sampling a replacement is nothing but a shift by 2 C, which the distance already covers.
    one = SubsampledGaussian(
        noise_multiplier=noise_multiplier / distance, sample_rate=rate, replaced=fixed and rate < 1
    )
    return Event(
        mechanism="gaussian",
        rdp=partial(rdp_without_replacement if fixed else poisson_rdp, one),
        gaussian=one,
        count=count,
        unit=unit,
        relation=relation,
        sampling=sampling,
        view=view,
        assumptions=(
            f"each {unit} adds a vector of norm at most C, and the noise has a standard deviation of {noise_multiplier:g} C",
            *_premises(sampling, relation, unit, sample_rate, f"{count} of {steps}"),
            *assumptions,
        ),
    )


def epsilon(
    noise_multiplier: float = 1.0,
    sample_rate: float = 0.01,
    steps: int = 1000,
    delta: float = 1e-5,
    accountant: str = "prv",
    unit: str = "record",
    sampling: str = "poisson",
    relation: str | None = None,
) -> Epsilon:
    """The epsilon of ``steps`` steps of DP-SGD, or rounds of DP-FedAvg; parameters as in `gaussian_event`.

    Args:
        delta: in (0, 1).
        accountant: "rdp", "prv" or "gdp".

    Raises:
        ConfigError: a parameter out of its range, a relation that the sampling does not support, or an accountant that
            does not know the relation.
    """
    event = gaussian_event(
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        steps=steps,
        sampling=sampling,
        unit=unit,
        relation=relation,
        view=VIEWS.get(unit, "") if isinstance(unit, str) else "",
    )
    return accountant_named(accountant).compose_events([event], delta)


def poisson_rdp(one: SubsampledGaussian, orders: Reals) -> Reals:
    """The larger Rényi divergence between the release with and without the unit, by opacus; exact but for rounding.

        D(a) = log E_{x ~ N(0, s^2)} [(1 - q + q exp((2 x - 1) / (2 s^2)))^a] / (a - 1)

    Infinite beyond an order of 1000, where opacus' binomial coefficients overflow. With noise above 100 its series for
    fractional orders takes seconds, so the next whole order replaces them: a divergence never falls as the order grows.

    Source: Mironov, Talwar and Zhang 2019, "Rényi differential privacy of the sampled Gaussian mechanism".
    """
    if one.sample_rate == 1:
        return orders / (2 * one.noise_multiplier**2)
    # Copied, since the cache hands the same array to every caller.
    return _compute_rdp(one, orders.tobytes()).copy()


@lru_cache(maxsize=256)
def _compute_rdp(one: SubsampledGaussian, at: bytes) -> Reals:
    """`poisson_rdp` at orders given as the bytes of float64, since arrays cannot be keys of a cache."""
    s, q, orders = one.noise_multiplier, one.sample_rate, np.frombuffer(at)
    # Many orders share a ceiling, and each series is computed once.
    used = np.ceil(orders) if s > 100 else orders
    which, where = np.unique(used[used <= 1000], return_inverse=True)
    found = np.full_like(orders, np.inf)
    found[used <= 1000] = divergences(q, s, which)[where]
    return np.maximum(found, 0.0)  # rounding takes the smallest ones below 0


def rdp_without_replacement(one: SubsampledGaussian, orders: Reals) -> Reals:
    """A bound on the Rényi divergence when one unit is replaced and a share q of all is drawn without replacement.

        D(a) <= log(1 + q^2 (a over 2) min{4 (e^r(2) - 1), 2 e^r(2)} + sum_{j=3}^a q^j (a over j) 2 e^((j-1) r(j))) / (a - 1)

    for whole orders, with r(j) = j / (2 s^2) of the Gaussian mechanism itself; a smaller order costs no more than the next
    whole one, and sampling never costs more than none.

    Source: Wang, Balle and Kasiviswanathan 2019, "Subsampled Rényi differential privacy and analytical moments accountant"
    (AISTATS), Theorem 9.
    """
    s, q = one.noise_multiplier, one.sample_rate
    which, where = np.unique(np.ceil(orders), return_inverse=True)
    sampled = np.array([_wang(int(a), s, q) for a in which])[where]
    bound: Reals = np.minimum(sampled, orders / (2 * s**2))
    return bound


@lru_cache(maxsize=2**14)
def _wang(a: int, s: float, q: float) -> float:
    from scipy.special import gammaln, logsumexp

    # In logarithms, for e^((j - 1) r(j)) overflows. Pure Gaussian noise has an infinite r(infinity), so that the theorem's
    # min{2, (e^r(infinity) - 1)^j} is 2.
    j = np.arange(2, a + 1)
    r = j / (2 * s**2)
    logs = gammaln(a + 1) - gammaln(j + 1) - gammaln(a - j + 1) + j * math.log(q) + math.log(2) + (j - 1) * r
    if r[0] < math.log(2):  # then 4 (e^r - 1) < 2 e^r
        logs[0] += math.log(2 * math.expm1(r[0])) - r[0]
    return float(np.logaddexp(0, logsumexp(logs))) / (a - 1)


def _resolve_relation(s: float, q: float, steps: int, sampling: str, unit: str, relation: str | None) -> str:
    """The relation, if all parameters fit together."""
    require(
        not isinstance(sampling, str) or sampling != "shuffle",
        "sampling: no amplification is proven for shuffled batches as they are used; got 'shuffle'. Use 'cyclic', which counts "
        "one step per epoch without amplification, or sample by 'poisson'.",
    )
    known = isinstance(sampling, str) and sampling in RELATIONS
    require(known, f"sampling: expected one of {', '.join(RELATIONS)}; got {brief(sampling)}.")
    require(isinstance(unit, str) and unit in VIEWS, f"unit: expected one of {', '.join(VIEWS)}; got {brief(unit)}.")
    for name, value in (("noise_multiplier", s), ("sample_rate", q)):
        known = is_real(value)
        require(known, f"{name}: expected a number; got {brief(value)}.")
    require(not s >= 1e300, f"noise_multiplier: expected less than 1e300; got {brief(s)}.")
    require(
        s > 0,
        f"noise_multiplier: expected a positive number; got {brief(s)}. Without noise nothing is private, and "
        "epsilon is infinite.",
    )
    require(0 < q <= 1, f"sample_rate: expected more than 0 and at most 1; got {brief(q)}.")
    require(
        sampling != "none" or q == 1,
        f"sample_rate: expected 1 with sampling none, where all take part; got {brief(q)}.",
    )
    whole = is_whole(steps) or (is_real(steps) and math.isfinite(steps) and steps == int(steps))
    require(whole and steps >= 1, f"steps: expected a whole number, 1 or more; got {brief(steps)}.")
    require(steps <= 2**53, f"steps: expected at most 2^53, beyond what any training takes; got {brief(steps)}.")
    chosen = RELATIONS[sampling][0] if relation is None else relation
    known = isinstance(chosen, str) and chosen in ("add/remove", "replace")
    require(known, f"relation: expected one of add/remove, replace; got {brief(relation)}.")
    require(
        chosen in RELATIONS[sampling], f"relation: got {chosen} with sampling {sampling}, but {_WHY_NOT.get(sampling)}"
    )
    return chosen


def _premises(sampling: str, relation: str, unit: str, rate: float, share: str) -> list[str]:
    """The assumptions of a sampling scheme."""
    # Without it the number of participants, which is public, would already tell the neighbors apart.
    absent = [f"a {unit} that is removed still counts, as zeros: who takes part is public"] * (relation == "add/remove")
    return {
        "poisson": [
            f"each {unit} is in each step with probability {rate:g}, on its own, and who is in stays secret",
            f"the sum is divided by a public number, never by how many {unit}s were drawn",
        ],
        "fixed": [f"each step draws a share of {rate:g} without replacement, uniformly, and who is in stays secret"],
        "none": absent,
        "cyclic": [f"a public schedule puts each {unit} into at most {share} steps", *absent],
    }[sampling]
