"""What is kept of each call: a few numbers, so that memory does not grow with the size of an update."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts.audit import Integers, Reals
from fedguard.privacy.blackbox.mechanism import Outcome
from fedguard.privacy.blackbox.pairs import Pair

#: Most coordinates of an output that are kept, and most numbers that are kept of all calls with one input.
MOST_COORDINATES, MOST_KEPT = 256, 8_000_000
#: Bits of a number that scores read.
MANTISSA = 16
#: In place of what is no finite number, which no sum survives.
INFINITE = 1e30


@dataclass(frozen=True)
class Features:
    """n calls with one input.

    Attributes:
        along: float64 ``[n]``: the output along x - y, whose length is 1.
        signs: float64 ``[n]``: the output along sign(x - y).
        length, peak: float64 ``[n]``: Euclidean length, and largest absolute value.
        zeros, copies: float64 ``[n]``: number of coordinates that are 0, and that equal the ones of x.
        digest: int64 ``[n]``: of all bytes of the outcome, exceptions and shapes included.
        coordinates: float64 ``[n, k]``: the coordinates in which x and y differ most, then others.
    """

    along: Reals
    signs: Reals
    length: Reals
    peak: Reals
    zeros: Reals
    copies: Reals
    digest: Integers
    coordinates: Reals

    def __len__(self) -> int:
        return len(self.along)

    def slice(self, start: int, stop: int) -> Features:
        """The calls from ``start`` to before ``stop``."""
        return Features(*(getattr(self, one.name)[start:stop] for one in fields(self)))


class Recorder:
    """Reduces outcomes to `Features` of one pair.

    Args:
        calls: expected number of calls, which limits the number of coordinates kept.
    """

    def __init__(self, pair: Pair, calls: int) -> None:
        difference = pair.x - pair.y
        self._direction = difference / np.linalg.norm(difference)
        self._x = pair.x.astype(np.float32).astype(np.float64)  # as it is given to the mechanism
        k = min(len(difference), MOST_COORDINATES, max(16, MOST_KEPT // max(1, calls)))
        self._kept = np.argsort(-np.abs(difference), kind="stable")[:k]

    def record(self, outcomes: Sequence[Outcome]) -> Features:
        """The features of some calls."""
        numbers, digests, coordinates = zip(*map(self._reduce, outcomes), strict=True)
        along, signs, length, peak, zeros, copies = np.asarray(numbers).T
        kept = np.asarray(digests, np.int64), np.stack(coordinates)
        return Features(along, signs, length, peak, zeros, copies, *kept)

    def _reduce(self, outcome: Outcome) -> tuple[tuple[float, ...], int, Reals]:
        whole = outcome.vector
        digest = _digest(outcome)
        if whole is None:  # an exception speaks by its digest alone
            return (0.0,) * 6, digest, np.zeros(len(self._kept))
        vector = np.nan_to_num(whole, nan=INFINITE, posinf=INFINITE, neginf=-INFINITE)
        if vector.shape != self._x.shape:  # other shapes have no direction in common with the input
            vector = np.resize(vector, self._x.shape) if vector.size else np.zeros_like(self._x)
        vector, raw = round_off(vector), vector
        numbers = (
            float(vector @ self._direction),
            float(vector @ np.sign(self._direction)),
            float(np.linalg.norm(vector)),
            float(np.abs(vector).max(initial=0.0)),
            float((raw == 0).sum()),
            float(((raw == self._x) & (self._x != 0)).sum()),
        )
        return numbers, digest, vector[self._kept]


def round_off(vector: Reals) -> Reals:
    """The numbers with `MANTISSA` bits of their mantissa.

    The last bits of x + noise depend on x in any floating-point mechanism (Mironov 2012), so a score that reads them by chance
    would refute right ones. A bound by rounded numbers holds as well.
    """
    mantissa, exponent = np.frexp(vector)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**MANTISSA) / 2.0**MANTISSA, exponent))


def _digest(outcome: Outcome) -> int:
    content = outcome.label.encode() + (b"" if outcome.vector is None else outcome.vector.tobytes())
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def count_values(digests: NDArray[np.int64]) -> tuple[Integers, Integers]:
    """The different digests and how often each occurs, the most frequent first."""
    values, counts = np.unique(digests, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return values[order], counts[order]
