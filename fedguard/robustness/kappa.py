"""The kappa-meter: an adversarial search for the worst input of a rule (Allouah et al., AISTATS 2023).

A rule R is (f, kappa)-robust if for all x_1 ... x_n and every S with ``|S| = n - f``

    |R(x) - mean_S|^2 <= kappa * mean_{i in S} |x_i - mean_S|^2

The search looks for the x and S with the largest ratio of the two sides: first over shapes that are known to hurt (far and
barely selected outliers, two points, a colluding crowd around an extreme honest row, simplices, small integers), then by
stretching the worst of them, then by random climbing from many starts. The rule is a black box, and no symmetry is assumed:
S may be any subset, and is improved without asking the rule again. The ratio found is a lower bound of kappa.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.aggregation import aggregate
from fedguard.arguments import MOST_CLIENTS, malicious_clients, real_number, whole_number
from fedguard.contracts import Pipeline, RuleContext, Sight
from fedguard.errors import PreconditionError
from fedguard.rng import MOST_SEED, Rng
from fedguard.robustness.shapes import PULLS, Mask, Rows, perturb_rows, pull_rows, shapes

#: Evaluations of the rule at ``effort = 1``.
EVALUATIONS = 8000
#: More effort is a typing error, and would never end.
MOST_EFFORT = 1e6
#: A ratio above this is called unbounded.
UNBOUNDED = 1e6
#: A departure from the mean below this share of the largest row (or of 1) is rounding: 64 units in the last place.
ROUNDING = 2.0**-18


@dataclass(frozen=True, eq=False)
class Kappa:
    """The largest robustness coefficient that the search found.

    Attributes:
        rule: the pipeline, in words.
        n, f: updates, and how many of them are malicious.
        value: the largest ratio; ``inf`` if it grows without bound. The true kappa is no smaller.
        witness: the input that shows it, float32 ``[n, d]``, and S, the ``n - f`` rows that count as honest.
        lower_bound: f / (n - 2f), which no rule can be below.
        upper_bound: the published bound of the rule; None if there is none, or none for this few updates.
        evaluations: number of evaluations of the rule.
        seed: of the search, and of the rule's own draws.
    """

    rule: str
    n: int
    f: int
    value: float
    witness: tuple[Tensor, tuple[int, ...]]
    lower_bound: float
    upper_bound: float | None
    evaluations: int
    seed: int

    @property
    def verdict(self) -> str:
        """What the value says about the rule."""
        lower, upper = self.lower_bound, self.upper_bound
        published = "no bound is published for it" if upper is None else f"the published bound is {upper:.3g}"
        if math.isinf(self.value):
            broken = "" if upper is None else "; so the rule as it is written here is broken"
            return f"it grows without bound, the rule is not robust; {published}{broken}."
        if upper is not None and self.value > upper * 1.001 + 1e-6:
            return (
                f"above the published bound {upper:.3g}: the rule as it is written here is broken, or the bound does "
                "not hold for it."
            )
        if self.value < lower * 0.999:
            return f"below the lower bound f/(n - 2f) = {lower:.3g}, which is impossible: a fault of the search."
        if self.value <= lower * 1.001 + 1e-6:
            return f"it meets the lower bound f/(n - 2f) = {lower:.3g}, so no rule does better; {published}."
        times = f", {self.value / lower:.1f} times it" if lower else ""
        return f"above the lower bound f/(n - 2f) = {lower:.3g}{times}; {published}."

    def entry(self) -> dict[str, Any]:
        """All fields as JSON types; ``kappa`` is None if it is unbounded."""
        rows, honest = self.witness
        return {
            "rule": self.rule,
            "n": self.n,
            "f": self.f,
            "kappa": None if math.isinf(self.value) else self.value,
            "unbounded": math.isinf(self.value),
            "lower_bound": self.lower_bound,
            "upper_bound": self.upper_bound,
            "verdict": self.verdict,
            "evaluations": self.evaluations,
            "seed": self.seed,
            "witness": {"updates": rows.tolist(), "honest": list(honest)},
        }

    def __str__(self) -> str:
        value = "unbounded" if math.isinf(self.value) else f"at least {self.value:.3g}"
        return (
            f"{self.rule}, n = {self.n}, f = {self.f}: kappa {value} ({self.evaluations} inputs tried): {self.verdict}"
        )


def measure(pipeline: Pipeline, n: int, f: int, *, seed: int = 0, effort: float = 1.0) -> Kappa:
    """Search for the largest kappa of the server's part of ``pipeline`` on n updates of which f are malicious.

    Randomized rules get the same random stream for every input, so the value holds for one draw. Rules with state are in
    their first round. Each client claims the same number of examples.

    Args:
        seed: of the search and of the rule's own draws.
        effort: 1 evaluates the rule 8000 times, which takes a few seconds on one core.

    Raises:
        InputError: n, f or effort out of range.
        PreconditionError: the rule, or the definition of kappa, needs more updates for this f.
        NotAllowed: the rule needs more than the updates, such as root data.
    """
    n, f = whole_number(n, "kappa: n", 1, MOST_CLIENTS), malicious_clients(f, "kappa: f", 0)
    seed = whole_number(seed, "kappa: seed", 0, MOST_SEED)
    effort = real_number(effort, "kappa: effort", 0, MOST_EFFORT, above=True)
    if n <= 2 * f:
        raise PreconditionError(
            f"kappa is defined for n >= 2f + 1, with f = {f}: {2 * f + 1} updates; got n = {n}. Lower f to "
            f"{(n - 1) // 2} or raise n."
        )
    pipeline.check(n, f, "n")
    search = _KappaSearch(pipeline, n, f, seed, max(200, round(EVALUATIONS * effort)))
    found = search.run()
    return Kappa(
        rule=str(pipeline),
        n=n,
        f=f,
        value=math.inf if found.value > UNBOUNDED else found.value,
        witness=(torch.from_numpy(found.rows.astype(np.float32)), tuple(np.flatnonzero(found.honest).tolist())),
        lower_bound=f / (n - 2 * f),
        upper_bound=None if pipeline.unproven(n, f) else pipeline.kappa(n, f),
        evaluations=search.evaluations,
        seed=seed,
    )


@dataclass(frozen=True, eq=False)
class _KappaCandidate:
    """An input ``[n, d]`` (float32 values in float64), S as bool ``[n]``, the rule's answer, and the ratio."""

    value: float
    rows: Rows
    honest: Mask
    answer: Rows
    family: str


class _KappaSearch:
    def __init__(self, pipeline: Pipeline, n: int, f: int, seed: int, budget: int) -> None:
        self.pipeline, self.n, self.f, self.budget = pipeline, n, f, budget
        self.evaluations = 0
        self._draw = Rng(seed).child("kappa").numpy()
        self._context = RuleContext(
            "the kappa-meter",
            Sight.EACH_UPDATE,
            f=f,
            rng=Rng(seed),
            clients=tuple(range(n)),
            samples=torch.ones(n, dtype=torch.float64),
            noise=torch.ones(n, dtype=torch.float64),
        )
        self._contexts: dict[int, RuleContext] = {}

    def run(self) -> _KappaCandidate:
        """Evaluate shapes, stretch the worst ones, climb from ever fewer of the best, then stretch again."""
        pool = self._starts(self.budget // 4)
        # Reversed, so that the worst input of each dimension is the one that remains: rules may break in one dimension only
        by_length = {one.rows.shape[1]: one for one in reversed(pool)}
        pool += [self._stretch_input(one) for one in (*by_length.values(), *pool[:3])]
        # Successive halving: most of the budget goes to the few starts that still gain after the first heats
        for climbers, heats in ((48, 3), (8, 2), (1, 1)):
            pool = sorted(pool, key=_value, reverse=True)[:climbers]
            if pool[0].value > UNBOUNDED:
                return pool[0]
            steps = (self.budget - self.evaluations) // (heats * len(pool))
            pool = [self._hill_climb(one, steps) for one in pool]
        return self._stretch_input(pool[0])

    def _starts(self, budget: int, of_a_kind: int = 6) -> list[_KappaCandidate]:
        """The worst inputs of each kind of shape, the worst first."""
        best: dict[str, list[_KappaCandidate]] = {}
        for family, honest, malicious in shapes(self.n - self.f, self.f, self._draw):
            found = self._best_subset(self._shuffle_and_evaluate(honest, malicious, family))
            best[family] = sorted([found, *best.get(family, [])], key=_value, reverse=True)[:of_a_kind]
            # One unbounded input settles it: no search finds more than infinity
            if found.value > UNBOUNDED or self.evaluations >= budget:
                break
        return sorted((found for kind in best.values() for found in kind), key=_value, reverse=True)

    def _shuffle_and_evaluate(self, honest: Rows, malicious: Rows, family: str) -> _KappaCandidate:
        """Evaluate the rows in a random order, since a rule may favor a position."""
        order = self._draw.permutation(self.n)
        rows = _round_to_float32(np.concatenate([honest, malicious])[order])
        return self._evaluate_rows(rows, order < self.n - self.f, family)

    def _answer(self, rows: Rows) -> Rows:
        self.evaluations += 1
        dim = rows.shape[1]
        if dim not in self._contexts:
            context = self._context
            self._contexts[dim] = context.restrict(context.party, context.granted, layers=(dim,))
        vector = aggregate(self.pipeline, torch.from_numpy(rows.astype(np.float32)), self._contexts[dim]).vector
        return vector.double().numpy()

    def _evaluate_rows(self, rows: Rows, honest: Mask, family: str) -> _KappaCandidate:
        answer = self._answer(rows)
        return _KappaCandidate(ratio(rows, honest, answer), rows, honest, answer, family)

    def _best_subset(self, start: _KappaCandidate) -> _KappaCandidate:
        """Improve S by swaps of single rows, which need no evaluation of the rule."""
        best = start
        for _ in range(self.f):
            inside, outside = np.flatnonzero(best.honest), np.flatnonzero(~best.honest)
            # All swaps by rank-one updates of mean and spread; the best is then computed exactly, as the spread may cancel
            values = _after_swaps(best.rows, inside, outside, best.answer)
            i, j = np.unravel_index(values.argmax(), values.shape)
            honest = best.honest.copy()
            honest[inside[i]], honest[outside[j]] = False, True
            value = ratio(best.rows, honest, best.answer)
            if not value > best.value:
                break
            best = replace(best, value=value, honest=honest)
        return best

    def _stretch_input(self, start: _KappaCandidate) -> _KappaCandidate:
        """Pull parts of an input ever further, as long as the ratio grows, and return the worst input found."""
        best = start
        direction = self._draw.standard_normal((start.rows.shape[1],))
        for kind in PULLS:
            current = start
            for power in range(1, 8):
                # Rounded before the rule sees it, so that the ratio is of the very rows that it was given
                rows = _round_to_float32(pull_rows(kind, start.rows, start.honest, 10.0**power, direction))
                further = self._evaluate_rows(rows, start.honest, start.family)
                best = max(best, further, key=_value)
                # A ratio without bound grows by about the square of the pull, a hundredfold a step: below twofold is a plateau
                if best.value > UNBOUNDED or not further.value > 2 * current.value:
                    break
                current = further
        return best

    def _hill_climb(self, start: _KappaCandidate, steps: int) -> _KappaCandidate:
        """Random moves, kept unless they lower the ratio; their length grows after a gain and shrinks otherwise."""
        current, usual = start, 0.1
        for step in range(steps):
            length = min(2.0, usual * 10.0 ** self._draw.uniform(-2, 1))
            rows = _round_to_float32(perturb_rows(current.rows, current.honest, length, self._draw))
            tried = self._evaluate_rows(rows, current.honest, current.family)
            if step % 8 == 0:
                tried = self._best_subset(tried)
            # One gain makes up for about nine failures, so the length settles where a tenth of the moves gain
            usual = min(1.0, usual * 1.3) if tried.value > current.value else max(1e-4, usual * 0.97)
            # Equal ones too: rules that select have plateaus, which a climb must cross
            if tried.value >= current.value:
                current = tried
            if current.value > UNBOUNDED:
                break
        return current


def _round_to_float32(rows: Rows) -> Rows:
    """The nearest float32 values, in float64."""
    return rows.astype(np.float32).astype(np.float64)


def _value(found: _KappaCandidate) -> float:
    return found.value


def ratio(rows: Rows, honest: Mask, answer: Rows) -> float:
    """``|answer - mean_S|^2 / mean_{i in S} |x_i - mean_S|^2`` in float64, less rounding.

    If all rows of S are equal, it is ``inf`` if the answer differs from them, else 0.
    """
    # About a row of S: far from the origin, squares of the rows themselves would cancel
    first = rows[honest][0]
    centered = rows[honest] - first
    mean = centered.mean(0)
    spread = float(np.square(centered - mean).sum(1).mean())
    away = float(np.linalg.norm(answer - first - mean))
    away = max(0.0, away - ROUNDING * max(1.0, float(np.linalg.norm(rows, axis=1).max())))
    return away**2 / spread if spread > 0 else math.inf if away > 0 else 0.0


def _after_swaps(rows: Rows, inside: NDArray[np.intp], outside: NDArray[np.intp], answer: Rows) -> Rows:
    """``[|inside|, |outside|]``: approximate ratios after each swap of a row of S for a row outside."""
    h = len(inside)
    mean = rows[inside].mean(0)
    kept, taken, point = rows[inside] - mean, rows[outside] - mean, answer - mean
    squares, others = np.square(kept).sum(1), np.square(taken).sum(1)
    shift = (others[None] - 2 * kept @ taken.T + squares[:, None]) / h**2  # |the mean's move|^2
    spread = (squares.sum() - squares[:, None] + others[None]) / h - shift
    along = ((taken @ point)[None] - (kept @ point)[:, None]) / h
    values: Rows = (point @ point - 2 * along + shift) / np.maximum(spread, 1e-30)
    return values
