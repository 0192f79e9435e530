"""What a few calls show without statistics: noise that is missing, repeats, is seeded, or has its own values for each input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedguard.contracts.audit import Reals
from fedguard.privacy.blackbox.features import INFINITE
from fedguard.privacy.blackbox.mechanism import Arrays, BlackBoxMechanism, Outcome, call
from fedguard.privacy.blackbox.pairs import Pair

#: Codes of findings that leave nothing to sample.
NEEDS_NO_SAMPLES = ("no_noise", "seed")
#: With fewer coordinates, two equal calls say nothing: randomized response has few outputs.
FEWEST_COORDINATES = 8
#: Calls of each input, and of one instance; and with each kind of array.
CALLS, KIND_CALLS = 24, 24


@dataclass(frozen=True)
class StructuralFinding:
    """One thing that structure alone shows.

    Attributes:
        code: a stable word, such as ``no_noise``.
        words: what was seen.
        refutes: whether no finite epsilon fits it.
    """

    code: str
    words: str
    refutes: bool


def find_structure(mechanism: BlackBoxMechanism, pair: Pair) -> list[StructuralFinding]:
    """All findings on a pair of inputs of ordinary length."""
    x, y = mechanism.arrays(pair.x), mechanism.arrays(pair.y)
    fresh_x, fresh_y = ([call(mechanism.fresh(), side) for _ in range(CALLS)] for side in (x, y))
    same_x, same_y = (
        [call(instance, side) for _ in range(CALLS)]
        for instance, side in ((mechanism.fresh(), x), (mechanism.fresh(), y))
    )
    found = [*_find_missing_noise(mechanism, fresh_x, fresh_y, (same_x, same_y), x)]
    if not found:
        found += [*_find_disjoint_values(fresh_x, fresh_y)]
    found += _find_unpaid(fresh_x, fresh_y)
    if mechanism.scalars:
        return found
    return [*found, *_find_dependent_exceptions(mechanism, fresh_x), *find_unguarded_kinds(mechanism, pair)]


def _vectors(outcomes: list[Outcome]) -> Reals | None:
    """float64 ``[calls, d]``; None if a call raised or shapes differ."""
    vectors = [one.vector for one in outcomes if one.vector is not None]
    if len(vectors) < len(outcomes) or len({len(vector) for vector in vectors}) != 1:
        return None
    return np.nan_to_num(np.stack(vectors), nan=INFINITE, posinf=INFINITE, neginf=-INFINITE)


def _find_missing_noise(
    mechanism: BlackBoxMechanism,
    fresh_x: list[Outcome],
    fresh_y: list[Outcome],
    same: tuple[list[Outcome], list[Outcome]],
    x: Arrays,
) -> Iterator[StructuralFinding]:
    a, b, c, d = (_vectors(calls) for calls in (fresh_x, fresh_y, *same))
    if a is None or b is None or c is None or d is None or a.shape[1] < FEWEST_COORDINATES or a.shape != b.shape:
        return
    if (a == a[0]).all() and (b == b[0]).all() and (a[0] == b[0]).all():
        return  # an output that does not depend on the input leaks nothing
    if (c == c[0]).all():
        yield StructuralFinding("no_noise", "calls of one instance are equal to the last bit: there is no noise", True)
        return
    if (a == a[0]).all() and (b == b[0]).all():
        yield StructuralFinding("seed", "new instances make the same noise: it is seeded inside the constructor", True)
        return
    if b.shape[1:] == d.shape[1:] and _repeats_of_its_own(c, np.concatenate([b, d])):
        yield StructuralFinding(
            "seed", "releases of one input repeat to the last bit, and never come from the other", True
        )
        return
    elsewhere = mechanism.first_release_elsewhere(x)
    if elsewhere is not None and elsewhere.shape == a[0].shape:
        again = mechanism.first_release_elsewhere(x)
        if again is not None and np.array_equal(elsewhere, again):
            yield StructuralFinding(
                "seed", "new processes make the same noise: it is seeded when the module is imported", True
            )
    if (share := bare_share(a, b)) > 0:
        words = f"{100 * share:.3g} % of the coordinates leave without noise, and follow the input"
        yield StructuralFinding("bare", words, True)


def bare_share(a: Reals, b: Reals) -> float:
    """Share of the columns that are constant in ``a`` and in ``b``, float64 ``[calls, d]``, and differ between them."""
    if a.shape[1:] != b.shape[1:] or a.shape[1] < FEWEST_COORDINATES:
        return 0.0
    return float(((a == a[0]).all(0) & (b == b[0]).all(0) & (a[0] != b[0])).mean())


def _repeats_of_its_own(rows: Reals, others: Reals) -> bool:
    """Whether rows repeat that are not among the others; a release that is skipped by chance is the same for all inputs."""
    values, counts = np.unique(rows, axis=0, return_counts=True)
    return any(not (others == value).all(1).any() for value in values[counts > 1])


def _find_disjoint_values(fresh_x: list[Outcome], fresh_y: list[Outcome]) -> Iterator[StructuralFinding]:
    """Noise of few values that are others for the other input, such as coin flips around each."""
    a, b = _vectors(fresh_x), _vectors(fresh_y)
    if a is None or b is None or a.shape[1] < FEWEST_COORDINATES or a.shape != b.shape:
        return
    few = [
        column
        for column in range(a.shape[1])
        if len(one := np.unique(a[:, column])) <= CALLS // 6
        and len(two := np.unique(b[:, column])) <= CALLS // 6
        and not np.isin(one, two).any()
    ]
    if len(few) >= max(1, a.shape[1] // 50):
        share = f"{100 * len(few) / a.shape[1]:.3g} % of the coordinates"
        yield StructuralFinding("values", f"{share} take few values, and none of them for both inputs", True)


def _find_unpaid(fresh_x: list[Outcome], fresh_y: list[Outcome]) -> Iterator[StructuralFinding]:
    """What leaves beside the update, is the same in every call, and follows the input."""
    for key, value in fresh_x[0].beside.items():
        ours, theirs = ([one.beside.get(key) for one in side] for side in (fresh_x, fresh_y))
        fixed = all(_equal(one, value) for one in ours) and all(_equal(one, theirs[0]) for one in theirs)
        if fixed and not _equal(value, theirs[0]):
            yield StructuralFinding(
                "metrics", f"{key!r} leaves beside the update without noise, and follows the input", False
            )


def _equal(one: Any, two: Any) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(two)))


def _find_dependent_exceptions(mechanism: BlackBoxMechanism, ordinary: list[Outcome]) -> Iterator[StructuralFinding]:
    """Inputs of one client that stop the mechanism, while ordinary ones do not."""
    if any(one.vector is None for one in ordinary):
        return
    d = mechanism.size
    inputs: Mapping[str, Reals] = {
        "an update that is exactly 0": np.zeros(d),
        "NaN": np.full(d, np.nan),
        "infinity": np.full(d, np.inf),
        "values of 1e30": np.full(d, 1e30),
    }
    for words, vector in inputs.items():
        with np.errstate(all="ignore"):
            outcome = call(mechanism.fresh(), mechanism.arrays(vector))
        if outcome.vector is None:
            yield StructuralFinding(
                "stops", f"{words} raises {outcome.label}: one client can stop whoever calls it", False
            )
        elif words == "NaN" and np.isnan(outcome.vector).any():
            yield StructuralFinding("float", "NaN passes through: one client can ruin a sum", False)


def find_unguarded_kinds(mechanism: BlackBoxMechanism, pair: Pair) -> Iterator[StructuralFinding]:
    """Kinds of array that leave as they came, while ordinary ones do not."""
    ordinary = mechanism.arrays(pair.x)
    usual = call(mechanism.fresh(), ordinary).vector
    last = ordinary[-1].ravel()
    if usual is None or (len(usual) >= len(last) and np.array_equal(usual[-len(last) :], last)):
        return
    kinds = {
        "float64": [*(array.astype(np.float64) for array in ordinary)],
        "whole numbers": [*ordinary[:-1], np.arange(7, 7 + ordinary[-1].size).reshape(ordinary[-1].shape)],
        "no dimensions": [*ordinary, np.asarray(12345.5, np.float32)],
        "non-contiguous memory": [*(np.asfortranarray(array) for array in ordinary)],
    }
    for words, arrays in kinds.items():
        try:
            lefts = [
                mechanism.fresh()(tuple(array.copy(order="K") for array in arrays)).arrays for _ in range(KIND_CALLS)
            ]
            other = mechanism.fresh()(tuple(np.asarray(array / 2, array.dtype) for array in arrays)).arrays
        except Exception:
            continue
        if any(len(left) != len(arrays) for left in (*lefts, other)) or not np.asarray(lefts[0][-1]).size:
            continue
        same = all(_equal(left[-1], lefts[0][-1]) for left in lefts) and not _equal(other[-1], lefts[0][-1])
        # Whole numbers with little noise coincide by chance: there only what is unchanged counts
        if same and (words != "whole numbers" or _equal(lefts[0][-1], arrays[-1])):
            code = {"whole numbers": "buffers", "no dimensions": "scalars"}.get(words, "float")
            yield StructuralFinding(code, f"arrays of {words} leave without noise", True)
