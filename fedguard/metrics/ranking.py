"""The highest mean of several, and which others cannot be separated from it: paired tests by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedguard.metrics.figures import Metric
from fedguard.metrics.stats import ENOUGH, Estimate, compare_pairs, holm, holm_levels, p_text, student

#: Significance level: with an adjusted p below it, a mean is separated from the highest
LEVEL = 0.05
#: The probability with which the seeds of `seeds_needed` would separate two means
POWER = 0.8
#: More additional seeds than this are not proposed
MOST_SEEDS = 30
#: Fewer seeds in total than this are not proposed
LEAST_SEEDS = 5


@dataclass(frozen=True, kw_only=True)
class RankingEntry:
    """An entry with a lower mean than the first, on the seeds of both.

    Attributes:
        name: name of the entry.
        mean: mean of its own scores.
        difference: mean over common seeds of the first's score less its own.
        low, high: interval of the difference, at the level that Holm's procedure leaves to this comparison: it excludes 0
            exactly if the two are separated. None below three common seeds.
        p_value: of the two-sided paired t-test, adjusted by Holm over all comparisons with the first; None below three common
            seeds.
        needed: total number of seeds that would separate the two with a probability of 80 %, for the observed difference and
            standard deviation; None if this is more than 30 additional seeds, or if they are separated.
    """

    name: str
    mean: float
    difference: float
    low: float | None
    high: float | None
    p_value: float | None
    needed: int | None = None

    @property
    def apart(self) -> bool:
        """Whether it is separated from the first."""
        return self.p_value is not None and self.p_value < LEVEL

    def words(self, figure: Metric) -> str:
        """``krum, 6.3 points lower [0.5, 13.1], p = .03``."""
        lower = f"{self.name}, {figure.difference(self.difference)} lower"
        if self.p_value is None or self.low is None or self.high is None:
            return f"{lower} on too few common seeds for a test"
        if figure.text(self.low) == figure.text(self.high):
            return f"{lower} on each seed, {p_text(self.p_value)}"
        most = math.inf if figure.bounds is None else figure.bounds[1] - figure.bounds[0]
        low, high = (figure.text(max(-most, min(most, end))) for end in (self.low, self.high))
        return f"{lower} [{low}, {high}], {p_text(self.p_value)}"


@dataclass(frozen=True)
class Ranking:
    """The entry with the highest mean, and all others in decreasing order of theirs.

    Attributes:
        seeds: seeds of the first.
        ahead_on_all: entries that are behind the first on each common seed, with at least one common seed.
    """

    first: str
    seeds: int
    behind: tuple[RankingEntry, ...]
    ahead_on_all: tuple[str, ...]

    @property
    def group(self) -> tuple[str, ...]:
        """The leading group: the first, and all that are not separated from it."""
        return self.first, *(one.name for one in self.behind if not one.apart)

    @property
    def nearest(self) -> RankingEntry | None:
        """The highest mean among those not separated from the first; None if all are separated."""
        return next((one for one in self.behind if not one.apart), None)

    def sentence(self, figure: Metric, first: Estimate, under: str, of: str = "defenses") -> str:
        """The sentence about the leading group; with one or two seeds, that they do not rank.

        Args:
            figure: the metric of the scores.
            first: score of the first, with its interval.
            under: the condition, such as ``under the worst of 5 attacks``.
            of: what is ranked; at least two.
        """
        if self.seeds < ENOUGH:
            return "One seed: no ranking." if self.seeds == 1 else "Two seeds do not rank."
        group, count = self.group, len(self.behind) + 1
        if len(group) == 1:
            said = f"{self.first} keeps the most {under}: {figure.format_with_unit(first)}"
            return f"{said}; next is {self.behind[0].words(figure)}."
        if len(group) <= 3:
            return f"No single winner on {self.seeds} seeds: {join_names(group)} cannot be told apart."
        many = f"The {count}" if len(group) == count else f"{len(group)} of {count}"
        return f"{many} {of} cannot be told apart on {self.seeds} seeds."

    def action(self) -> str:
        """How many more seeds may separate the first and the nearest; "" if there is none."""
        nearest = self.nearest
        if nearest is None or self.seeds < ENOUGH:
            return ""
        if nearest.needed is None:
            return f"Not by seeds: {self.first} against {nearest.name} would take over {MOST_SEEDS} more."
        more = nearest.needed - self.seeds
        count = "one more seed" if more == 1 else f"{more} more seeds"
        return (
            f"About {count} may settle {self.first} against {nearest.name}: set seeds: {nearest.needed} and run again."
        )


def rank(scores: Mapping[str, Mapping[int, float]]) -> Ranking:
    """Rank by mean, and test each against the first.

    For each other entry the differences on common seeds get a two-sided t-test (`stats.compare_pairs`), and the p-values Holm's
    correction for their number. Of equal means the first in ``scores`` comes first.

    Args:
        scores: of each, by seed; more is better. At least one, each with at least one seed.
    """
    means = {name: math.fsum(values.values()) / len(values) for name, values in scores.items()}
    first, *others = sorted(means, key=lambda name: -means[name])
    pairs = {
        name: [value - scores[name][seed] for seed, value in scores[first].items() if seed in scores[name]]
        for name in others
    }
    tests = {name: compare_pairs(values).p_value for name, values in pairs.items() if len(values) >= ENOUGH}
    known = {name: 1.0 if p is None else p for name, p in tests.items()}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True))
    left = dict(zip(known, holm_levels(list(known.values()), LEVEL), strict=True))
    behind = tuple(
        _behind(name, means[name], pairs[name], adjusted.get(name), left.get(name, LEVEL)) for name in others
    )
    ahead = tuple(name for name in others if pairs[name] and min(pairs[name]) > 0)
    return Ranking(first, len(scores[first]), behind, ahead)


def _behind(name: str, mean: float, differences: Sequence[float], p_value: float | None, alpha: float) -> RankingEntry:
    difference = math.fsum(differences) / len(differences) if differences else math.nan
    if p_value is None:
        return RankingEntry(name=name, mean=mean, difference=difference, low=None, high=None, p_value=None)
    found = student(differences, 1 - alpha)
    needed = None if p_value < LEVEL else seeds_needed(differences, alpha)
    return RankingEntry(
        name=name, mean=mean, difference=difference, low=found.low, high=found.high, p_value=p_value, needed=needed
    )


def join_names(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def seeds_needed(differences: Sequence[float], alpha: float = LEVEL, power: float = POWER) -> int | None:
    """Total number of seeds that a two-sided paired t-test at ``alpha`` needs to detect this mean with this standard deviation.

    The least n with $P(T > t_{n-1, 1 - alpha/2}) >= power$ where T has n - 1 degrees of freedom and the noncentrality $|m|
    sqrt(n) / s$, for the mean m and the standard deviation s of the differences. Both are the observed ones, so the result is a
    plan, not a guarantee. None if it is more than `MOST_SEEDS` additional seeds, or the mean is 0.

    Args:
        differences: by seed, at least two.
        alpha: level of the test.
        power: probability to detect it.
    """
    from scipy.special import nctdtr, stdtrit

    n = len(differences)
    mean = abs(math.fsum(differences) / n)
    spread = math.sqrt(math.fsum((value - math.fsum(differences) / n) ** 2 for value in differences) / (n - 1))
    if mean == 0:
        return None
    for seeds in range(max(n + 1, LEAST_SEEDS), n + MOST_SEEDS + 1):
        if spread <= 1e-12 * mean:
            chance = 1.0 if (compare_pairs([mean] * seeds).p_value or 1.0) < alpha else 0.0
        else:
            beyond, center = float(stdtrit(seeds - 1, 1 - alpha / 2)), mean * math.sqrt(seeds) / spread
            chance = 1 - float(nctdtr(seeds - 1, center, beyond))  # beyond the other end is next to nothing
        if chance >= power:
            return seeds
    return None
