"""Inputs that hurt aggregation rules: shapes as starts of a search, and pulls and moves that make them worse.

Rows are float64 ``[n, d]``, of which h are honest and f malicious.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]
Draw = np.random.Generator


def shapes(h: int, f: int, draw: Draw) -> Iterator[tuple[str, Rows, Rows]]:
    """Endless: (kind, honest rows, malicious rows); the first shows that no rule has kappa below f / (n - 2f)."""
    yield "the lower bound", _column(np.zeros(h)), _column(np.ones(f))
    two_points = _two_points(h, f, draw)
    while True:
        for d in (1, 2, 3, h, h + f):
            for shape in (_far, _barely_inside, _extreme_row, _simplex, _both_sides, _crowds, _integers, _heavy):
                honest, malicious = shape(h, f, d, draw)
                # Kappa ignores a common shift, so a ratio that grows with one shows a rule that is not translation-equivariant
                # or that loses close rows in float32
                shift = draw.choice([0.0, 0.0, 0.0, 1.0, 10.0, 1e3, 1e5]) * draw.standard_normal(d)
                yield f"{shape.__name__} {d}", honest + shift, malicious + shift
                yield from itertools.islice(two_points, 1)


def _column(values: NDArray[np.generic]) -> Rows:
    return values.astype(np.float64)[:, None]


def _two_points(h: int, f: int, draw: Draw) -> Iterator[tuple[str, Rows, Rows]]:
    """k honest and j malicious rows at 1, the other honest rows at 0, the other malicious rows at 0 or elsewhere."""
    # With ties, and with values just off them, which of the two points a rule selects depends on how it breaks ties
    cases = [(k, f, 0.0, tie) for k in range(h) for tie in (0.0, 1e-3, -1e-3)]
    more = [(k, j, at, 0.0) for k in range(h) for j in range(f + 1) for at in (0.0, 0.5, 10.0, -10.0)]
    for count, at, other, tie in [*draw.permutation(cases), *draw.permutation(more)]:
        k, j = int(count), int(at)
        honest = (np.arange(h) < k) * (1 + tie) + (np.arange(h) >= k) * np.linspace(0, abs(tie), h)
        yield "two points", _column(honest), _column(np.where(np.arange(f) < j, 1.0, other))


def _cloud(h: int, d: int, draw: Draw) -> Rows:
    rows: Rows = draw.standard_normal((h, d))
    return rows


def _unit(d: int, draw: Draw) -> Rows:
    vector = draw.standard_normal(d)
    return vector / (np.linalg.norm(vector) + 1e-12)


def _far(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """Outliers at any distance, at one point or scattered."""
    distance = draw.choice([0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 100.0, 1e4])
    place = _unit(d, draw) if draw.random() < 0.7 else np.stack([_unit(d, draw) for _ in range(max(f, 1))])[:f]
    return _cloud(h, d, draw), np.broadcast_to(distance * place, (f, d))


def _barely_inside(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """Malicious rows close to honest ones: a few deviations off (ALIE), against the mean (IPM), or a copy (mimic)."""
    honest = _cloud(h, d, draw) * draw.uniform(0.1, 1, d) + draw.uniform(0, 3) * _unit(d, draw)
    mean, deviation = honest.mean(0), honest.std(0)
    crafted = [
        mean + draw.uniform(0.2, 4) * deviation * draw.choice([-1, 1], d),
        -draw.choice([0.1, 0.5, 1.0, 2.0, 10.0]) * mean,
        honest[draw.integers(h)],
    ][draw.integers(3)]
    return honest, np.broadcast_to(crafted, (f, d))


def _extreme_row(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """A few honest rows away from the others, and malicious rows around them, so that a selecting rule selects there."""
    honest = _cloud(h, d, draw) * draw.choice([0.01, 0.3, 1.0])
    few = draw.integers(1, max(2, h // 2 + 1))
    honest[:few] = honest[:few] * draw.choice([0.0, 0.1, 1.0]) + draw.uniform(0.5, 5) * _unit(d, draw)
    return honest, honest[:few].mean(0) + draw.choice([0.0, 0.01, 0.3]) * _cloud(f, d, draw)


def _simplex(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """Most honest rows far from each other around a center; the other honest and the malicious rows at one point."""
    few = draw.integers(0, max(1, h // 2 + 1))
    honest = np.eye(h, d) if d >= h else np.stack([_unit(d, draw) for _ in range(h)])
    point = draw.uniform(0.3, 5) * _unit(d, draw)
    honest[:few] = point
    return honest, np.broadcast_to(point, (f, d))


def _both_sides(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """Honest rows in a wide circle, the other honest rows at one point on one side of it, the malicious rows on the other.

    All rows are about equally far from their nearest rows, so a rule that adds up these distances, such as Krum, may select
    the malicious rows: they have the circle for neighbors, while the honest rows on the other side pull the mean away.
    """
    few = min(h - 1, f + int(draw.choice([1, 1, 1, 0, 2]))) if draw.random() < 0.8 else int(draw.integers(0, h))
    circle = np.zeros((h - few, d))
    if d > h - few:
        circle[:, : h - few] = np.eye(h - few) - 1 / (h - few)
    else:
        circle[:, : max(1, d - 1)] = draw.standard_normal((h - few, max(1, d - 1)))
    circle /= np.maximum(np.linalg.norm(circle, axis=1, keepdims=True), 1e-12)
    axis = np.eye(d)[-1]
    reach = draw.uniform(0.8, 2.0)
    aside = np.broadcast_to(-reach * draw.uniform(1.0, 1.3) * axis, (few, d))
    return np.concatenate([circle, aside]), np.broadcast_to(reach * axis, (f, d))


def _crowds(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """All rows at a few common points, with random numbers of rows and distances."""
    places = draw.standard_normal((draw.integers(2, 5), d)) * draw.choice([1.0, 1.0, 10.0], d)
    weights = draw.dirichlet(np.ones(len(places)))
    return places[draw.choice(len(places), h, p=weights)], places[draw.choice(len(places), f)]


def _integers(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    top = draw.integers(1, 4)
    return draw.integers(0, top + 1, (h, d)).astype(float), draw.integers(-top, 2 * top + 1, (f, d)).astype(float)


def _heavy(h: int, f: int, d: int, draw: Draw) -> tuple[Rows, Rows]:
    """Honest rows of very different lengths; the malicious rows close to a multiple of one of them."""
    honest = _cloud(h, d, draw) * np.exp(draw.uniform(0, 2) * draw.standard_normal((h, 1)))
    return honest, honest[draw.integers(h)] * draw.uniform(0, 2) + 0.01 * _cloud(f, d, draw)


#: The pulls of `pull_rows`: malicious rows away from the honest mean, honest rows together, all rows away from 0, all larger.
PULLS = ("malicious", "together", "away", "larger")


def pull_rows(kind: str, rows: Rows, honest: Mask, factor: float, direction: Rows) -> Rows:
    """One of `PULLS` by a factor; ``direction`` (``[d]``) is the direction of ``away``."""
    mean = rows[honest].mean(0)
    if kind == "malicious":
        return np.where(honest[:, None], rows, mean + factor * (rows - mean))
    if kind == "together":
        return np.where(honest[:, None], mean + (rows - mean) / factor, rows)
    return rows + factor * direction if kind == "away" else rows * factor


def perturb_rows(rows: Rows, honest: Mask, length: float, draw: Draw) -> Rows:
    """One random change of the input; ``length`` is relative to the standard deviation of the honest rows."""
    rows = rows.copy()
    n, d = rows.shape
    mean = rows[honest].mean(0)
    # A floor, since honest rows that are all equal would never move again
    scale = length * max(1e-3, float(np.sqrt(np.square(rows[honest] - mean).sum(1).mean())))
    one, other = draw.integers(n, size=2)
    # Worst cases often have equal rows: moving one of them alone would break the tie that makes them bad
    crowd = (rows == rows[one]).all(1)
    kind = draw.choice(len(_MOVES), p=_MOVES)
    if kind in (0, 1):  # equal rows stay equal
        rows[crowd] += scale * draw.standard_normal(d)
    if kind in (1, 2):
        third = draw.integers(n)
        rows[third] = rows[other]
    elif kind == 3:
        rows[crowd] += length * draw.standard_normal() * (rows[other] - rows[one])
    elif kind == 4:
        rows[~honest] = rows[other]
    elif kind == 5:
        rows[~honest] += scale * draw.standard_normal(d)
    elif kind == 6:
        rows[~honest] = mean + math.exp(length * draw.standard_normal()) * (rows[~honest] - mean)
    elif kind == 7:
        rows[one] += scale * draw.standard_normal(d)
    elif kind == 8:
        rows[one, draw.integers(d)] += scale * draw.standard_normal()
    elif kind == 9:
        rows += scale * draw.standard_normal((n, d)) * (draw.random((n, 1)) < 0.5)
    elif kind == 10:
        k = draw.integers(d)
        rows[one, k] = rows[other, k]
    return rows


#: Frequencies of the moves: equal rows, one row onto another, the malicious rows, one row, all rows, one coordinate.
_MOVES = np.array([4, 2, 2, 2, 1, 1, 1, 2, 1, 2, 1]) / 19
