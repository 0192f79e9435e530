"""Search for the strength of an attack against a known rule.

The search asks `fedguard.contracts.KnownRule.probes`, in coefficients on the honest updates and a few directions: a probe costs
O(n^3), whatever the length of the updates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Probe, Sight, State
from fedguard.errors import PreconditionError
from fedguard.kernels import FAINT, column_blocks, combine_rows

#: What a search maximizes: ``|R - mu|``, or minus ``<R, mu> / |mu|^2``.
Objective = Literal["deviation", "progress"]

#: A range whose end is the best strength is stretched by this factor, up to this many times.
STRETCH, STRETCHES = 4.0, 5


class RuleOracle:
    """The known rule as an oracle: the gain if all malicious clients send the same combination of the given rows.

    The rows are the honest updates, followed by the ``directions`` (float32 ``[d]`` each); a combination is float64 ``[h +
    m]``.
    """

    def __init__(self, view: PoisonView, directions: Sequence[Tensor], objective: Objective = "deviation") -> None:
        self._view, self._objective = view, objective
        self._honest = view.honest
        self._directions = torch.stack([*directions]) if directions else view.honest[:0]
        self._probes = view.rule.probes(self._honest, self._directions, view.f)

    def probe(self, row: Tensor) -> Probe:
        """The rule's answer, without a pass over the updates."""
        return self._probes(row.expand(self._view.f, -1))

    def score(self, row: Tensor) -> float:
        """The gain of the combination, by a probe."""
        return self._gain(self.probe(row))

    def with_objective(self, objective: Objective) -> RuleOracle:
        """The same rows and rule with another objective."""
        other = copy(self)
        other._objective = objective
        return other

    def vector(self, row: Tensor) -> Tensor:
        """float32 ``[d]``: the combination itself."""
        h = len(self._honest)
        return combine_rows(self._honest, row[:h]) + row[h:].to(self._directions.dtype) @ self._directions

    def best(self, rows: Sequence[Tensor]) -> Tensor:
        """The combination with the largest gain; the first one if several are equal.

        Probes of rules without weights use a sample of the coordinates, so for these rules each combination is put to the
        whole rule.
        """
        sampled = self.probe(rows[0]).malicious_weight is None
        return max(rows, key=self._score_by_rule if sampled else self.score)

    @cached_property
    def mean(self) -> Tensor:
        """float64 ``[h + m]``: the combination that is the mean of the honest updates."""
        row = torch.zeros(len(self._honest) + len(self._directions), dtype=torch.float64)
        row[: len(self._honest)] = 1 / len(self._honest)
        return row

    def unit(self, position: int) -> Tensor:
        """float64 ``[h + m]``: one row by itself; the directions start at h."""
        row = torch.zeros_like(self.mean)
        row[position] = 1
        return row

    def _gain(self, probe: Probe) -> float:
        return probe.deviation if self._objective == "deviation" else -probe.progress

    def _score_by_rule(self, row: Tensor) -> float:
        malicious = self.vector(row).expand(self._view.f, -1)
        answer = self._view.rule(torch.cat([self._honest, malicious])).double()
        mean = self._honest.mean(0).double()
        # A mean of zero makes every answer count as no progress instead of nan
        progress = float(answer @ mean / mean.square().sum().clamp(min=1e-300))
        return self._gain(Probe(float((answer - mean).norm()), progress, None))


def strongest(
    score: Callable[[float], float], magnitudes: Sequence[float], signs: Sequence[int] = (1, -1)
) -> tuple[float, float]:
    """The strength that scores highest, and the best one on another hill (or the same again).

    First it tries 0 and every magnitude with every sign. If the best is the last one on its side, it tries up to
    `STRETCHES` strengths beyond. Then it runs golden sections around the two best hills, 5 around each and 8 more around
    the higher one. With six magnitudes that makes 31 probes. Among equal scores the smallest strength wins, then the
    positive one. So the end of a plateau is not mistaken for the best, and the search looks towards 0 for the edge of the
    plateau, just short of which a rule may be harmed more.
    """
    scores: dict[float, float] = {}

    def ask(strength: float) -> float:
        if strength not in scores:
            scores[strength] = float(f"{score(strength):.9g}")  # rounding must not decide between equals
        return scores[strength]

    def rank(strength: float) -> tuple[float, float, float]:
        return -scores[strength], abs(strength), -strength

    for strength in (0.0, *(sign * magnitude for sign in signs for magnitude in magnitudes)):
        ask(strength)
    for _ in range(STRETCHES):
        best = min(scores, key=rank)
        if best == 0 or best not in (min(scores), max(scores)):
            break
        ask(best * STRETCH)
    hills = sorted(_hills(scores), key=lambda hill: rank(hill[1]))[:2]
    climbed = sorted((_climb(ask, hill, 5) for hill in hills), key=lambda hill: rank(hill[1]))
    climbed[0] = _climb(ask, climbed[0], 8)
    return climbed[0][1], climbed[-1][1]


Hill = tuple[float, float, float]


def _hills(scores: Mapping[float, float]) -> Iterator[Hill]:
    """Each strength that scores more than its neighbor towards 0 and no less than the one beyond, with both neighbors.

    A hill at an end of the range has no neighbor beyond, so all three strengths are the same.
    """
    order = sorted(scores)
    for i, strength in enumerate(order):
        left, right = order[max(i - 1, 0)], order[min(i + 1, len(order) - 1)]
        # Towards 0 the comparison is strict, outwards it is not: of a plateau only the edge nearest 0 is a hill
        inner, outer = (left, right) if strength > 0 else (right, left)
        # Strength 0 has no side towards 0
        above = scores[strength] > scores[inner] or strength == 0
        if above and scores[strength] >= max(scores[outer], scores[inner]):
            at_end = outer == strength
            yield (strength, strength, strength) if at_end else (left, strength, right)


def _climb(ask: Callable[[float], float], hill: Hill, steps: int) -> Hill:
    """Golden sections within (left, middle, right), with the best in the middle; the score may have jumps."""
    left, middle, right = hill
    for _ in range(steps if left < right else 0):
        rightwards = right - middle > middle - left
        # (3 - sqrt 5) / 2, the golden section, of the longer side
        new = middle + 0.381966 * ((right if rightwards else left) - middle)
        if ask(new) > ask(middle):
            left, middle, right = (middle, new, right) if rightwards else (left, new, middle)
        else:
            left, right = (left, new) if rightwards else (new, right)
    return left, middle, right


def largest(admitted: Callable[[float], bool], magnitudes: Sequence[float]) -> float:
    """The largest positive strength that is admitted, after 12 halvings; 0 if none is.

    Admission need not be monotonic: the search starts from the largest admitted magnitude, and goes up to `STRETCHES` times
    beyond the last one.
    """
    good = [magnitude for magnitude in sorted(magnitudes) if admitted(magnitude)]
    if not good:
        return 0.0
    low = good[-1]
    high = next((magnitude for magnitude in sorted(magnitudes) if magnitude > low), None)
    for _ in range(STRETCHES):
        if high is not None:
            break
        if admitted(low * STRETCH):
            low *= STRETCH
        else:
            high = low * STRETCH
    for _ in range(12 if high is not None else 0):
        assert high is not None
        middle = (low + high) / 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    return low


def strongest_row(
    asked: RuleOracle,
    start: Tensor,
    step: Tensor,
    magnitudes: Sequence[float],
    simple: float,
    signs: Sequence[int] = (1, -1),
) -> Tensor:
    """``start + strength * step`` with the strength that gains most, and no less than the fixed ``simple`` one."""
    try:
        found = strongest(lambda strength: asked.score(start + strength * step), magnitudes, signs)
        return asked.best([start + strength * step for strength in dict.fromkeys((*found, simple))])
    except PreconditionError:
        return start + simple * step  # too few updates for the rule: the server abandons the round, whatever is sent


def spread(honest: Tensor) -> Tensor:
    """float32 ``[d]``: the standard deviation of each coordinate, with n - 1 in the denominator; 0 for a single row.

    It works in blocks that fit the cache, which is ten times as fast as torch's own function. If float32 cannot hold the
    squares, it works on rows scaled by a power of two.
    """
    found = _spread(honest)
    if bool(FAINT < found.max() ** 2 < torch.inf) or not bool((size := honest.abs().max()) > 0):
        return found
    # Multiplying by a power of two is exact, so that the scaled result differs by rounding of the squares alone
    by = 2.0 ** -math.frexp(float(size))[1]
    return _spread(honest * by) / by


def _spread(honest: Tensor) -> Tensor:
    mean, square = honest.mean(0), torch.zeros_like(honest[0])
    for block in column_blocks(*honest.shape) if len(honest) > 1 else ():
        square[block] = (honest[:, block] - mean[block]).square_().sum(0)
    return square.div_(max(len(honest) - 1, 1)).sqrt_()


class SearchingAttack(PoisonAttack):
    """Base of the attacks that search for a strength in each round, and record it and whether it reached the range's end."""

    needs = (Sight.HONEST_UPDATES | Sight.RULE,)
    adaptive = True
    #: The magnitudes tried first.
    magnitudes: ClassVar[tuple[float, ...]]

    def craft(self, view: PoisonView) -> Tensor:
        if len(view.honest) == 0:
            return torch.zeros(view.f, view.dim)  # nobody is there to be harmed
        return self.search_update(view).expand(view.f, -1)

    @abstractmethod
    def search_update(self, view: PoisonView) -> Tensor:
        """float32 ``[d]``: what all malicious clients send."""

    @abstractmethod
    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        """The strength that was found, read off the crafted updates (float32 ``[f, d]``)."""

    def reach(self, view: PoisonView, crafted: Tensor) -> float:
        """The strength in the units of `magnitudes`, if these differ."""
        return self.strength(view, crafted)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        if len(view.honest) == 0:
            return view.state
        # 0.99, since the strength is read off updates rounded to float32
        ended = abs(self.reach(view, crafted)) > 0.99 * max(self.magnitudes) * STRETCH**STRETCHES
        return {
            "strength": torch.tensor(self.strength(view, crafted), dtype=torch.float64),
            "rounds": view.state.get("rounds", torch.tensor(0)) + 1,
            "at_boundary": view.state.get("at_boundary", torch.tensor(0)) + int(ended),
        }

    def notes(self, state: State) -> dict[str, float]:
        if not state:
            return {}
        return {
            "strength": float(state["strength"]),
            "at_boundary": float(state["at_boundary"]) / float(state["rounds"]),
        }


def along(crafted: Tensor, start: Tensor, step: Tensor) -> float:
    """The s for which ``start + s * step`` is closest to ``crafted`` (float32 ``[d]`` each); 0 for a step of 0."""
    direction = step.double()
    square = float(direction @ direction)
    return float((crafted.double() - start.double()) @ direction) / square if square > 0 else 0.0
