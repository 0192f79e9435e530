"""The papers' formulae as plain float64 loops, one update at a time. Nothing of the package is used here."""

from __future__ import annotations

import math
from statistics import fmean, stdev

Vector = list[float]


def distance_squared(a: Vector, b: Vector) -> float:
    return sum([(p - q) ** 2 for p, q in zip(a, b, strict=True)])  # a list is quicker than a generator


def norm(a: Vector) -> float:
    return math.sqrt(sum(p * p for p in a))


def mean(rows: list[Vector]) -> Vector:
    return [fmean(column) for column in zip(*rows, strict=True)]


def median(rows: list[Vector], f: int) -> Vector:
    out = []
    for column in zip(*rows, strict=True):
        ordered = sorted(column)
        middle = len(ordered) // 2
        out.append(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
    return out


def trimmed_mean(rows: list[Vector], f: int) -> Vector:
    return [fmean(sorted(column)[f : len(rows) - f]) for column in zip(*rows, strict=True)]


def krum_scores(rows: list[Vector], f: int) -> list[float]:
    scores = []
    for i, row in enumerate(rows):
        others = sorted(distance_squared(row, other) for j, other in enumerate(rows) if j != i)
        scores.append(sum(others[: len(rows) - f - 2]))
    return scores


def krum(rows: list[Vector], f: int) -> Vector:
    scores = krum_scores(rows, f)
    return rows[scores.index(min(scores))]


def multi_krum(rows: list[Vector], f: int) -> Vector:
    scores = krum_scores(rows, f)
    best = sorted(range(len(rows)), key=lambda i: scores[i])[: len(rows) - f]
    return mean([rows[i] for i in best])


def geometric_median(
    rows: list[Vector], f: int, nu: float = 1e-6, steps: int = 10_000, start: Vector | None = None
) -> Vector:
    z, columns = start or [0.0] * len(rows[0]), [*zip(*rows, strict=True)]
    for _ in range(steps):
        weights = [1 / max(nu, math.sqrt(distance_squared(row, z))) for row in rows]
        total = sum(weights)
        moved = [sum([w * x for w, x in zip(weights, column, strict=True)]) / total for column in columns]
        if distance_squared(moved, z) < 1e-24:
            return moved
        z = moved
    return z


def centered_clipping(rows: list[Vector], start: Vector, tau: float, steps: int) -> Vector:
    v = start
    for _ in range(steps):
        moved = list(v)
        for row in rows:
            away = [p - q for p, q in zip(row, v, strict=True)]
            pull = min(1.0, tau / norm(away)) / len(rows) if norm(away) else 0.0
            moved = [m + pull * a for m, a in zip(moved, away, strict=True)]
        v = moved
    return v


def fltrust(rows: list[Vector], root: Vector) -> Vector:
    trust = []
    for row in rows:
        cosine = sum(p * q for p, q in zip(row, root, strict=True)) / (norm(row) * norm(root))
        trust.append(max(0.0, cosine))
    if sum(trust) == 0:
        return [0.0] * len(root)
    scaled = [[p * norm(root) / norm(row) for p in row] for row in rows]
    return [sum(t * row[k] for t, row in zip(trust, scaled, strict=True)) / sum(trust) for k in range(len(root))]


def nnm(rows: list[Vector], f: int) -> list[Vector]:
    mixed = []
    for row in rows:
        nearest = sorted(rows, key=lambda other: distance_squared(row, other))[: len(rows) - f]
        mixed.append(mean(nearest))
    return mixed


def clip(rows: list[Vector], bound: float) -> list[Vector]:
    return [[p * min(1.0, bound / norm(row)) for p in row] for row in rows]


def alie(rows: list[Vector], z: float) -> Vector:
    return [fmean(column) + z * stdev(column) for column in zip(*rows, strict=True)]


def min_max_by_bisection(rows: list[Vector], direction: Vector) -> Vector:
    """The source's search: double gamma while the distance bound holds, then halve the interval."""
    mu = mean(rows)
    bound = max(distance_squared(a, b) for a in rows for b in rows)

    def crafted(gamma: float) -> Vector:
        return [m + gamma * p for m, p in zip(mu, direction, strict=True)]

    def fits(gamma: float) -> bool:
        return max(distance_squared(crafted(gamma), row) for row in rows) <= bound

    low, high = 0.0, 1e-6
    while fits(high):
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return crafted(low)
