"""Lives: a mechanism that changes with its calls is called R times in a row, and one sample is one such life.

R fresh releases say nothing of an instance whose noise shrinks, whose clip follows the data, or which stops adding noise. Two
views of a life are tested: the mean of its releases, and the last one. K independent lives with the same input compose as K
releases do, so that a bound is not limited by log n; the claim for them is the one for K R releases.
"""

from __future__ import annotations

import logging
import math
import random
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedguard.contracts.audit import Reals
from fedguard.privacy.blackbox.claim import EpsilonClaim
from fedguard.privacy.blackbox.features import Recorder
from fedguard.privacy.blackbox.law import ShownBound, lower_bound_by_law
from fedguard.privacy.blackbox.mechanism import Arrays, BlackBoxMechanism, Outcome, call
from fedguard.privacy.blackbox.pairs import Pair
from fedguard.privacy.blackbox.structure import StructuralFinding, bare_share
from fedguard.privacy.blackbox.two_sample import LowerBound, TwoSample

#: Lives that are composed.
LIVES = 50
#: Fewest and most lives with each input, and lives whose last releases are compared to the last bit.
FEWEST, MOST, COMPARED = 80, 4000, 16


@dataclass(frozen=True, kw_only=True)
class LifeBounds:
    """Bounds for an instance that makes R releases.

    Attributes:
        lives: with each input.
        proven: for `LIVES` lives, any law; its ``rounds`` are R times as many.
        shown: for one life, by the law that the mean of its releases, or the last one, seems to have; None for neither.
    """

    lives: int
    proven: LowerBound
    shown: ShownBound | None
    findings: tuple[StructuralFinding, ...]


def measure_lives(
    mechanism: BlackBoxMechanism,
    pair: Pair,
    lives: int,
    rounds: int,
    claim: EpsilonClaim | None,
    delta: float,
    risk: float,
) -> LifeBounds:
    """Bounds by lives of ``rounds`` calls of one instance with each input of a pair."""
    inputs = mechanism.arrays(pair.x), mechanism.arrays(pair.y)
    kept: list[list[tuple[Outcome, Outcome]]] = [[], []]
    for _ in range(lives):
        for side, arrays in zip(kept, inputs, strict=True):
            side.append(live(mechanism, arrays, rounds))
    over = claim.over(rounds * LIVES)[1] if claim and math.isfinite(claim.over(rounds * LIVES)[0]) else delta
    at = claim.over(rounds)[1] if claim and math.isfinite(claim.over(rounds)[0]) else delta
    proven = LowerBound(0.0, over, rounds * LIVES)
    shown: ShownBound | None = None
    for view in (0, 1):
        recorder = Recorder(pair, lives)
        x, y = (recorder.record([one[view] for one in side]) for side in kept)
        tests = TwoSample(x, y, delta=at, rounds=LIVES, over=over, risk=risk / 2)
        found = tests.judge_rounds()
        if found.epsilon > proven.epsilon:
            proven = LowerBound(found.epsilon, over, rounds * LIVES, found.score, found.fpr, found.fnr)
        by_law = lower_bound_by_law(*tests.holdout, delta=at, over=over, rounds=1, risk=risk / 2)
        if by_law is not None and (shown is None or by_law.epsilon > shown.epsilon):
            shown = by_law
    return LifeBounds(lives=lives, proven=proven, shown=shown, findings=tuple(_find_bare(kept, rounds)))


def live(mechanism: BlackBoxMechanism, arrays: Arrays, rounds: int) -> tuple[Outcome, Outcome]:
    """The mean of all releases of one instance, times sqrt(R), and the last one; a life ends with an exception."""
    release = mechanism.fresh()
    total: Reals | None = None
    last = call(release, arrays)
    count = 0
    for number in range(rounds):
        found = last if number == 0 else call(release, arrays)
        if found.vector is None or (total is not None and found.vector.shape != total.shape):
            break
        last, count = found, count + 1
        total = found.vector if total is None else total + found.vector
    if total is None:
        return last, last
    return Outcome(total / math.sqrt(count), last.label), last


def _find_bare(kept: Sequence[Sequence[tuple[Outcome, Outcome]]], rounds: int) -> Iterator[StructuralFinding]:
    """Places whose last release is the same in all lives, and another one for the other input."""
    sides = [[one[1].vector for one in side[:COMPARED]] for side in kept]
    if any(vector is None for side in sides for vector in side):
        return
    a, b = (np.stack([vector for vector in side if vector is not None]) for side in sides)
    if (share := bare_share(a, b)) > 0:
        words = f"after {rounds} calls of one instance, {100 * share:.3g} % of the coordinates leave without noise"
        yield StructuralFinding("bare", words, True)


def changes_with_calls(found: Any, release: Any, arrays: Arrays) -> bool:
    """Whether two calls change what an object or function holds, random generators aside."""
    prints = [_fingerprint(found)]
    for _ in range(2):
        call(release, arrays)
        prints.append(_fingerprint(found))
    return len(set(prints)) > 1


#: What says nothing of the state of a mechanism: its noise comes from generators. Those of numpy and torch show no content.
_STATELESS = (types.ModuleType, type, random.Random, logging.Logger)


def _fingerprint(found: Any, depth: int = 5) -> str:
    """What an object holds, as text; generators, modules, types and functions of modules are left out."""
    if depth == 0 or isinstance(found, _STATELESS):
        return ""
    if isinstance(found, np.ndarray):
        return f"{found.shape}{found.tobytes()!r}"
    if found is None or isinstance(found, (bool, int, float, str, bytes)):
        return repr(found)
    return "".join(f"{key}:{_fingerprint(value, depth - 1)};" for key, value in _parts(found))


def _parts(found: Any) -> Iterator[tuple[Any, Any]]:
    """What an object consists of, by name or number."""
    if isinstance(found, Mapping):
        yield from found.items()
    elif isinstance(found, (list, tuple)):
        yield from enumerate(found)
    elif isinstance(found, types.MethodType):
        yield "self", found.__self__
    elif isinstance(found, types.FunctionType):
        yield from enumerate(_content(cell) for cell in found.__closure__ or ())
    elif hasattr(found, "__dict__"):
        yield from vars(found).items()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None
