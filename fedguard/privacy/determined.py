"""Exposure by exact linear algebra: the unknown vectors that an observer's messages determine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

#: A known linear combination of unknown vectors: a coefficient for each.
Row = Sequence[int | Fraction]

Matrix = NDArray[np.float64]

#: Rows are dependent below this share of the largest singular value; and the share of a vector that may be outside their span.
_DEPENDENT, _OFF = 1e-10, 1e-6


def find_exposed_vectors(messages: Iterable[Row], known: Collection[int] = ()) -> frozenset[int]:
    """The unknown vectors that the messages determine, in addition to the known ones.

    A message is $sum_i a_i x_i$ with coefficients that its reader knows. $x_i$ can be solved for if and only if the i-th unit
    vector lies in the span of the rows a, once the known vectors are taken out: then the reduced echelon form of these rows
    contains it as a row. Coefficients are rational, and nothing is rounded. A vector that is not determined may still be known
    in part: as a sum with others, or because real updates are not arbitrary vectors.

    Args:
        messages: rows a, all of one length.
        known: vectors that the reader already has, such as its own.
    """
    rows = [[Fraction(0 if i in known else a) for i, a in enumerate(row)] for row in messages]
    reduced = _reduce_rows(rows)
    return frozenset(pivot for pivot, row in reduced if sum(value != 0 for value in row) == 1)


def combinations(messages: Matrix, wanted: Matrix, known: Collection[int] = ()) -> tuple[Matrix, NDArray[np.bool_]]:
    """The wanted vectors as combinations of the messages, in float64; `find_exposed_vectors` decides exactly.

    $c^T A = w$ apart from the known vectors, with the shortest c. Weights with square roots, as in accelerated gossip, are not
    fractions. A solution that needs more digits than float64 has is useless to a reader with float32 messages.

    Args:
        messages: A, ``[m, U]``.
        wanted: rows w, ``[k, U]``; unit vectors for single unknowns.
        known: vectors that the reader already has.

    Returns:
        float64 ``[k, m]``: a row c for each w; bool ``[k]``: which w are in the span.
    """
    free = np.delete(np.arange(messages.shape[1]), sorted(known))
    rows, goals = messages[:, free], wanted[:, free]
    there: NDArray[np.bool_]
    if not rows.size:
        there = np.asarray(~goals.any(1), bool)
        return np.zeros((len(wanted), len(messages))), there
    found = goals @ np.linalg.pinv(rows, rcond=_DEPENDENT)
    off = np.linalg.norm(found @ rows - goals, axis=1)
    there = np.asarray(off <= _OFF * np.linalg.norm(goals, axis=1), bool)
    return found, there


def _reduce_rows(rows: list[list[Fraction]]) -> list[tuple[int, list[Fraction]]]:
    """Reduced row echelon form: each row with the column of its pivot, which is 1 there and 0 in all other rows."""
    done: list[tuple[int, list[Fraction]]] = []
    for new in rows:
        row = list(new)
        for pivot, other in done:
            _clear(row, pivot, other)
        pivot = next((i for i, value in enumerate(row) if value), -1)
        if pivot < 0:
            continue
        row = [value / row[pivot] for value in row]
        for _, other in done:
            _clear(other, pivot, row)
        done.append((pivot, row))
    return done


def _clear(row: list[Fraction], pivot: int, other: Sequence[Fraction]) -> None:
    """In place: subtract the multiple of ``other``, which is 1 at its pivot, that makes ``row`` 0 there."""
    factor = row[pivot]
    if factor:
        row[:] = [value - factor * taken for value, taken in zip(row, other, strict=True)]
