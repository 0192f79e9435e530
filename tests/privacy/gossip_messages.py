"""What nodes hear of each other's values in gossip, to the last digit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction

from fedguard.privacy.determined import Row


def trace_gossip(mixing: Sequence[Row], listeners: Collection[int], rounds: int, *, fresh: bool = False) -> list[Row]:
    """Messages that gossip nodes receive in ``rounds`` rounds, as rows over the nodes' first values.

    In round t (from 1) each node sends its value $x_i$ to its neighbors, and then $x <- W x$, with W known to all.

    Args:
        mixing: W, ``[n, n]``; j sends to i where $W_{ij}$ is not 0.
        listeners: nodes that combine the messages they receive.
        fresh: whether each node adds a new update before it sends in every round, not only in the first. Rows are then over
            all updates, the updates of round 1 first.
    """
    n, updates = len(mixing), rounds if fresh else 1
    weights = [[Fraction(a) for a in row] for row in mixing]
    values = [[Fraction(0)] * (n * updates) for _ in range(n)]
    heard: list[Row] = []
    for round in range(rounds):
        for i in range(n if round < updates else 0):
            values[i][n * round + i] += 1
        heard += [list(values[j]) for i in listeners for j in range(n) if j != i and weights[i][j]]
        values = [_mix_values(row, values) for row in weights]
    return heard


def _mix_values(weights: Sequence[Fraction], values: Sequence[Sequence[Fraction]]) -> list[Fraction]:
    used = [(weight, value) for weight, value in zip(weights, values, strict=True) if weight]
    return [sum((weight * value[k] for weight, value in used), Fraction(0)) for k in range(len(values[0]))]
