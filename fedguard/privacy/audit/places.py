"""Tests of the noise by place and by distribution.

Residuals over the claimed standard deviation are independent N(0, 1), in every coordinate, layer and client alike:

- places: the sum of squares is chi-square in each dyadic stretch of coordinates (from one coordinate to all), in each layer,
  and for each client; two-sided, Bonferroni over all places.
- law: Kolmogorov-Smirnov distance from N(0, 1), over all residuals, in each layer and for each client; and the largest modulus
  of N residuals, with P[largest <= m] = (2 Phi(m) - 1)^N. Integer noise is first transformed to N(0, 1) by its own law
  (`fedguard.privacy.audit.integers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.stats import chi2, kstest, norm

from fedguard.contracts.audit import Check, Integers, Reals, Transcript

#: Fewest values for a test of their distribution.
FEW = 100


def two_sided(squares: Reals | float, freedom: Reals | int) -> Reals:
    """Two-sided p-values of sums of squares with ``freedom`` degrees of freedom."""
    found: Reals = np.minimum(1.0, 2 * np.minimum(chi2.cdf(squares, freedom), chi2.sf(squares, freedom)))
    return found


def places(residuals: Reals, seen: Transcript) -> Check:
    """The place with the least likely amount of noise, among all coordinates, layers and clients."""
    squares, rounds = residuals**2, len(residuals)
    where = _positions(residuals, seen)
    sums, sizes = _sum_groups(where, squares.sum(axis=0)), _sum_groups(where, np.full(len(where), float(rounds)))
    compared, worst = 0, (2.0, 1.0, "")
    for names, some, many in _groups(sums, sizes, squares, seen):
        there = many > 0
        p_values = np.where(there, two_sided(some, np.maximum(many, 1)), 1.0)
        compared += int(there.sum())
        least = int(p_values.argmin())
        # Where several are as bad, the one of which most is missing.
        tied = np.flatnonzero(p_values == p_values[least])
        least = int(tied[np.argmax(many[tied])])
        ratio = float(np.sqrt(some[least] / max(many[least], 1)))
        found = (float(p_values[least]), -float(many[least]), f"{names(least)} has {ratio:.3f}")
        worst = min(worst, found, key=lambda one: one[:2])  # of equals the first, which says most
    return Check(
        name="places",
        p_value=float(min(1.0, compared * worst[0])),
        words=f"the noise of {worst[2]} times the claimed standard deviation, the least likely of {compared} places",
    )


def law(residuals: Reals, seen: Transcript) -> Check:
    """Distance of the residuals from their law: all of them, in each layer and for each client."""
    parts: list[tuple[str, Reals]] = []
    if seen.bare is not None:
        parts.append(("single draws", seen.bare))
    if seen.gaussian:
        parts += _parts(residuals, seen)
    # Clipped or heavy tails leave Kolmogorov's distance nearly as it is; the largest value shows them.
    found = [_largest(*parts[0])]
    if len(parts) > 1 and seen.bare is not None:
        found.append(_largest(*parts[1]))
    for name, values in parts:
        if values.size >= FEW:
            told = kstest(values.ravel(), norm.cdf, method="asymp")
            found.append((float(told.pvalue), f"the distribution of {name} is off by {told.statistic:.3f}"))
    p_value, words = min(found)
    return Check(name="law", p_value=float(min(1.0, len(found) * p_value)), words=words)


def _largest(name: str, values: Reals) -> tuple[float, str]:
    largest = float(np.abs(values).max())
    # In logarithms: (1 - 2 sf(m))^N rounds to 1 at once for large m.
    none_larger = values.size * np.log1p(-2 * norm.sf(largest)) if largest > 0 else -np.inf
    p_value = 2 * min(np.exp(none_larger), -np.expm1(none_larger))
    return float(p_value), f"the largest of {values.size} of {name} is {largest:.2f} standard deviations"


def _parts(residuals: Reals, seen: Transcript) -> list[tuple[str, Reals]]:
    found = [("all noise", residuals)]
    if len(seen.layers) > 1:
        layer = _layer(_positions(residuals, seen), seen.layers)
        found += [(f"the noise of layer {one}", residuals[:, layer == one]) for one in np.unique(layer)]
    if seen.clients is not None:
        found += [(f"the noise of client {one}", residuals[seen.clients == one]) for one in np.unique(seen.clients)]
    return found


def _groups(
    sums: Reals, sizes: Reals, squares: Reals, seen: Transcript
) -> Iterator[tuple[Callable[[int], str], Reals, Reals]]:
    """For each kind of place: names, sums of squares, and numbers of residuals."""
    if len(seen.layers) > 1:
        layer = _layer(np.arange(len(sums)), seen.layers)
        yield partial(_format_label, "layer"), _sum_groups(layer, sums), _sum_groups(layer, sizes)
    if seen.clients is not None:
        own = squares.sum(axis=1)
        each = np.full(len(own), float(squares.shape[1]))
        yield partial(_format_label, "client"), _sum_groups(seen.clients, own), _sum_groups(seen.clients, each)
    width = 1
    while True:
        starts = np.arange(0, len(sums), width)
        yield (
            partial(_stretch, width=width, dim=len(sums)),
            np.add.reduceat(sums, starts),
            np.add.reduceat(sizes, starts),
        )
        if width >= len(sums):
            break
        width *= 2


def _sum_groups(where: Integers, values: Reals) -> Reals:
    """float64: sums of ``values`` by their group in ``where``."""
    return np.bincount(where, values).astype(np.float64)


def _format_label(kind: str, number: int) -> str:
    return f"{kind} {number}"


def _stretch(number: int, width: int, dim: int) -> str:
    first, last = number * width, min((number + 1) * width, dim) - 1
    return f"coordinate {first}" if first == last else f"coordinates {first} to {last}"


def _positions(residuals: Reals, seen: Transcript) -> Integers:
    return np.arange(residuals.shape[1]) if seen.positions is None else seen.positions


def _layer(positions: Integers, layers: tuple[int, ...]) -> Integers:
    """int64: the layer of each coordinate."""
    return np.searchsorted(np.cumsum(layers), positions, side="right").astype(np.int64)
