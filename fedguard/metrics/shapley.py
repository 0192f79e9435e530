"""Contribution of each member of a coalition: Shapley values by truncated Monte Carlo (Ghorbani & Zou, ICML 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedguard.errors import require
from fedguard.rng import Rng

#: The value of a coalition
Value = Callable[[frozenset[int]], float]


@dataclass(frozen=True)
class ShapleyValues:
    """The contribution of each player.

    Attributes:
        shares: by player, in the unit of the value. They add up to the total.
        errors: by player, the standard error over the permutations; 0 if there is one.
        total: the value of all players less the value of none.
        evaluations: number of coalitions that were evaluated.
    """

    shares: dict[int, float]
    errors: dict[int, float]
    total: float
    evaluations: int


def shapley(
    value: Value, players: Sequence[int], rng: Rng, *, permutations: int = 100, tolerance: float = 0.0
) -> ShapleyValues:
    """Shapley values $phi_i = E[v(P_i + i) - v(P_i)]$, with $P_i$ the players before i in a random order of all n.

    In each order players are added one by one. Once the value is within ``tolerance`` of the total from the value of all, the
    remaining players get nothing, and the shares of this order are scaled to add up to the total. So shares always add up to it
    (efficiency), and a player that never changes a value gets 0 (null player).

    Args:
        value: is called once for each coalition.
        players: n of them, each once.
        permutations: number of random orders.
        tolerance: in [0, 1); 0 adds every player and has no bias.

    Raises:
        ConfigError: no players, one twice, no permutations, or a tolerance out of range.

    Source: Ghorbani and Zou, Data Shapley: Equitable Valuation of Data for Machine Learning, ICML 2019, algorithm 1; there
    truncated orders are not scaled.
    """
    require(0 < len(set(players)) == len(players), f"players: expected each once; got {list(players)}.")
    require(permutations >= 1, f"permutations: expected at least 1; got {permutations}.")
    require(0 <= tolerance < 1, f"tolerance: expected a number in [0, 1); got {tolerance}.")
    known: dict[frozenset[int], float] = {}

    def worth(coalition: frozenset[int]) -> float:
        if coalition not in known:
            known[coalition] = value(coalition)
        return known[coalition]

    nobody, everybody = worth(frozenset()), worth(frozenset(players))
    total, draw = everybody - nobody, rng.numpy()
    sums, squares = dict.fromkeys(players, 0.0), dict.fromkeys(players, 0.0)
    for _ in range(permutations):
        order = [players[place] for place in draw.permutation(len(players))]
        for player, share in _in_order(worth, order, nobody, everybody, tolerance).items():
            sums[player] += share
            squares[player] += share * share
    shares = {player: one / permutations for player, one in sums.items()}
    spread = {player: max(squares[player] / permutations - shares[player] ** 2, 0.0) for player in players}
    errors = {player: (one / max(permutations - 1, 1)) ** 0.5 for player, one in spread.items()}
    return ShapleyValues(shares, errors, total, len(known))


def _in_order(
    worth: Value, order: Sequence[int], nobody: float, everybody: float, tolerance: float
) -> dict[int, float]:
    """The marginal contribution of each player to those before it, up to where the order is truncated."""
    total, reached, coalition = everybody - nobody, nobody, frozenset[int]()
    found: dict[int, float] = {}
    for player in order:
        before, coalition = reached, coalition | {player}
        reached = worth(coalition)
        found[player] = reached - before
        if abs(everybody - reached) <= tolerance * abs(total) and reached != nobody:
            break
    scale = total / (reached - nobody) if reached != nobody else 1.0
    return {player: share * scale for player, share in found.items()}
