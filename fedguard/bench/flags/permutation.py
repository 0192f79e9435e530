"""Permutation invariance: each pipeline aggregates two rounds of random updates, and the same updates permuted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.contracts import Pipeline, RuleContext, Sight
from fedguard.errors import FedGuardError
from fedguard.registry import Registry, load_registry
from fedguard.rng import Rng

#: Layers of the network behind the updates.
LAYERS = (24, 8, 6, 2)
#: Differences below this share of the aggregate's length are rounding.
ROUNDING = 1e-4


def measure_order_effect(
    pipeline: Sequence[Mapping[str, Any]], n: int, f: int, known: Registry | None = None
) -> float | str:
    """Change of the aggregate when the clients are permuted, relative to its length; 0 if it is only rounding.

    The clients change places within a round and from one round to the next. The second also finds a rule that keeps state by
    row instead of by client.

    Args:
        pipeline: the specs of its stages.
        n, f: number of updates in a round, and the assumed f.
        known: the available rules; by default the installed ones only, since a store may name untrusted modules.

    Returns:
        the relative change, or why it cannot be judged.
    """
    try:
        built = (known or load_registry()).pipeline(list(pipeline))
        return _measure_change(built, n, f)
    except FedGuardError as error:
        return str(error)


def _measure_change(pipeline: Pipeline, n: int, f: int) -> float | str:
    draw = torch.Generator().manual_seed(0)
    rounds = [_updates(n, f, draw), _updates(n, f, draw)]
    same = torch.arange(n)
    straight = _two_rounds(pipeline, rounds, f, (same, same), 0)
    length = float(straight.norm())
    # In the same order with other seeds: a rule that moves now is random, and no permutation tells anything of it
    if any(_measure_shift(straight, _two_rounds(pipeline, rounds, f, (same, same), seed), length) for seed in (1, 2)):
        return "it draws, so that only its distribution can be the same"
    orders = [(torch.randperm(n, generator=draw), torch.randperm(n, generator=draw)) for _ in range(3)]
    orders.append((same.flip(0), same))  # reversed in one round alone: state kept by row then meets other clients
    return max(_measure_shift(straight, _two_rounds(pipeline, rounds, f, order, 0), length) for order in orders)


def _updates(n: int, f: int, draw: torch.Generator) -> Tensor:
    """float32 ``[n, 40]``: n - f updates around 1, and f around -2."""
    # Two groups, so that rules that select or clip have something to decide on, and may decide by order
    rows = torch.randn(n, sum(LAYERS), generator=draw) + 1
    rows[:f] -= 3
    return rows


def _two_rounds(
    pipeline: Pipeline, rounds: Sequence[Tensor], f: int, orders: tuple[Tensor, Tensor], seed: int
) -> Tensor:
    """The aggregates of both rounds, with the clients' rows in these orders."""
    results: list[Aggregate] = []
    for number, (updates, order) in enumerate(zip(rounds, orders, strict=True), start=1):
        states = results[-1].states if results else ()
        results.append(aggregate(pipeline, updates[order], _context(updates, order, f, number, seed), states))
    return torch.cat([result.vector for result in results]).double()


def _context(updates: Tensor, order: Tensor, f: int, round: int, seed: int) -> RuleContext:
    """A server that sees everything."""
    root = updates.mean(0)
    return RuleContext(
        "the check of the clients' order",
        Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA | Sight.GRAPH,
        f=f,
        round=round,
        rng=Rng(seed).child(round),
        clients=tuple(order.tolist()),
        own=int((order == len(order) - 1).nonzero()),  # an honest client, the same one in every order
        samples=order.double() + 10,  # belongs to the client, so it is permuted with its row
        root=root,
        layers=LAYERS,
        shape=(2,),
        model=torch.linspace(-1, 1, sum(LAYERS)),
        predict=_predict,
        root_loss=lambda model: float((model - root).square().sum()),
    )


def _predict(model: Tensor, x: Tensor) -> Tensor:
    """Logits of a network without hidden layers; its weights are the first four parameters."""
    return x @ model[:4].view(2, 2).T


def _measure_shift(first: Tensor, second: Tensor, length: float) -> float:
    moved = float((first - second).norm()) / max(length, 1e-30)  # an aggregate may be zero throughout
    return moved if moved > ROUNDING else 0.0
