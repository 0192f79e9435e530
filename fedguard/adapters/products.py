"""Rows that are products B A of low-rank factors: their inner products and sums, without any of them as a matrix.

A client's adapter is $P_i = B_i A_i$ and the model's is $P = B A$; what the client changed is the row

$x_i = P_i - P = (B_i - B) A_i + B (A_i - A) = U_i V_i$ with $U_i = [B_i - B, B]$ and $V_i = [A_i; A_i - A]$,

of rank 2 r. Then $<x_i, x_j> = tr((U_j^T U_i) (V_i V_j^T))$, from two Gram matrices of thin factors. What else is trained (a
head, biases) stays as it is, in coordinates beside the products. All is computed in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedguard.adapters.pairs import AdapterPair, FactorPlaces
from fedguard.errors import InputError
from fedguard.kernels import BLOCK_BYTES, walk
from fedguard.rows import Reduce, Rows, VectorRows


@dataclass(frozen=True)
class FactorStack:
    """The factors of one adapter: the model's, and each client's.

    Attributes:
        pair: the adapter.
        a, b: float64 ``[r, inputs]`` and ``[outputs, r]``: the model's.
        their_a, their_b: float64 ``[n, r, inputs]`` and ``[n, outputs, r]``: the clients', after training.
    """

    pair: AdapterPair
    a: Tensor
    b: Tensor
    their_a: Tensor
    their_b: Tensor

    @classmethod
    def of(cls, place: FactorPlaces, model: Tensor, updates: Tensor) -> FactorStack:
        """The factors at some places of a model (float32 ``[d]``) and of updates to it (float32 ``[n, d]``)."""
        pair = place.pair
        a = model[place.a].double().view(pair.rank, pair.inputs)
        b = model[place.b].double().view(pair.outputs, pair.rank)
        return cls(
            pair,
            a,
            b,
            a + updates[:, place.a].double().view(-1, pair.rank, pair.inputs),
            b + updates[:, place.b].double().view(-1, pair.outputs, pair.rank),
        )

    def changes(self) -> tuple[Tensor, Tensor]:
        """U ``[n, outputs, 2 r]`` and V ``[n, 2 r, inputs]``: U_i V_i is what client i adds to the layer's weight."""
        n, scaling = len(self.their_a), self.pair.scaling
        left = torch.cat([self.their_b - self.b, self.b.expand(n, -1, -1)], 2)
        return scaling * left, torch.cat([self.their_a, self.their_a - self.a], 1)


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """float64 ``[n, n]``: ``<U_i V_i, U_j V_j>`` of U ``[n, outputs, k]`` and V ``[n, k, inputs]``, never multiplied."""
    n, _, k = left.shape
    columns, rows = left.transpose(1, 2).reshape(n * k, -1), right.reshape(n * k, -1)
    return ((columns @ columns.T) * (rows @ rows.T)).view(n, k, n, k).sum((1, 3))


def factor_bias(places: Sequence[FactorPlaces], model: Tensor, updates: Tensor) -> float | None:
    """Distance of the product of mean factors from the mean of products, relative to the latter.

    $|mean(B) mean(A) - mean(B A)|_F / |mean(B A)|_F$ over all adapters together. The difference is
    $-mean((B_i - mean(B)) (A_i - mean(A)))$, which loses no digits where the two are close.

    Args:
        places: where a vector has the factors.
        model: float32 ``[d]``.
        updates: float32 ``[n, d]``.

    Returns:
        at least 0; None without adapters, or if the mean of products is 0.
    """
    away = size = 0.0
    for place in places:
        stack = FactorStack.of(place, model, updates)
        n, scaling = len(updates), stack.pair.scaling**2
        spread = stack.their_b - stack.their_b.mean(0), stack.their_a - stack.their_a.mean(0)
        away += scaling * float(inner_products(*spread).sum()) / n**2
        size += scaling * float(inner_products(stack.their_b, stack.their_a).sum()) / n**2
    return (max(away, 0.0) / size) ** 0.5 if size > 0 else None


class ProductRows(Rows):
    """The rows of a round as products of factors, beside the coordinates of what else is trained.

    Args:
        places: where an update has its factors.
        model: float32 ``[d]``, from which the clients trained.
        updates: float32 ``[n, d]``.
    """

    def __init__(self, places: Sequence[FactorPlaces], model: Tensor, updates: Tensor) -> None:
        super().__init__(updates)
        self.places, self.model = places, model

    def products(self, others: Sequence[Tensor]) -> Tensor:
        if others:
            raise InputError("a rule with an anchor sees coordinates, and these rows are products of factors.")
        n = len(self.updates)
        inner = torch.zeros(n + 1, n + 1, dtype=torch.float64)  # about the origin, which is the last row
        inner[:n, :n] = self._inner
        return inner

    def distances(self, point: Tensor | None) -> Tensor:
        if point is not None:
            raise InputError("a rule with an anchor sees coordinates, and these rows are products of factors.")
        return self._inner.diagonal().clamp(min=0).sqrt()

    def projections(self, draw: torch.Generator) -> Tensor:
        found = torch.zeros(len(self.updates), dtype=torch.float64)
        for place in self.places:
            left, right = FactorStack.of(place, self.model, self.updates).changes()
            u = torch.randn(left.shape[1], generator=draw, dtype=torch.float64)
            v = torch.randn(right.shape[2], generator=draw, dtype=torch.float64)
            found += ((u @ left) * (right @ v)).sum(1)
        for part in self._others():
            found += part.double() @ torch.randn(part.shape[1], generator=draw, dtype=torch.float64)
        return found

    def whole(self, asks: str) -> Tensor:
        raise InputError(
            f"'{asks}' reads rows as a whole, and these are products of factors, which are never computed as matrices. Take a "
            "rule by weights or coordinates, such as krum or median."
        )

    def combine(self, weights: Tensor) -> Tensor:
        vector = self._begin()
        for place in self.places:
            stack, shares = FactorStack.of(place, self.model, self.updates), weights.double()
            left = torch.cat([stack.b * (1 - shares.sum()), *(stack.their_b * shares[:, None, None])], 1)
            right = torch.cat([stack.a, *stack.their_a])
            self.put(vector, stack, place, left, right)
        for rest in self._rest:
            vector[rest] = VectorRows(self.updates[:, rest]).combine(weights)
        return vector

    def reduce(self, rule: Reduce, mixed: Tensor | None) -> Tensor:
        vector = self._begin()
        for place in self.places:
            stack = FactorStack.of(place, self.model, self.updates)
            moved = self._reduce_pair(stack, rule, mixed) / stack.pair.scaling
            unit = torch.eye(stack.pair.inputs, dtype=torch.float64)
            self.put(vector, stack, place, torch.cat([stack.b, moved], 1), torch.cat([stack.a, unit]))
        for rest in self._rest:
            vector[rest] = VectorRows(self.updates[:, rest]).reduce(rule, mixed)
        return vector

    @abstractmethod
    def put(self, vector: Tensor, stack: FactorStack, place: FactorPlaces, left: Tensor, right: Tensor) -> None:
        """Write into ``vector`` what brings the model's adapter to ``left @ right``, ``[outputs, k]`` and ``[k, inputs]``."""

    def _reduce_pair(self, stack: FactorStack, rule: Reduce, mixed: Tensor | None) -> Tensor:
        """float64 ``[outputs, inputs]``: a rule by coordinates on what the clients add to one layer, some outputs at a time."""
        left, right = stack.changes()
        n, outputs, inputs = len(left), stack.pair.outputs, stack.pair.inputs
        found = torch.empty(outputs, inputs, dtype=torch.float64)
        some = max(1, BLOCK_BYTES // (8 * n * inputs))
        for start in range(0, outputs, some):
            block = (left[:, start : start + some] @ right).reshape(n, -1)
            block = (block if mixed is None else mixed @ block).to(self.updates.dtype)
            found[start : start + some] = rule(block.T.contiguous().T).double().view(-1, inputs)
        return found

    @cached_property
    def unseen(self) -> tuple[slice, ...]:
        """Coordinates that no client sends, whatever an update holds there."""
        return ()

    def _begin(self) -> Tensor:
        return torch.zeros_like(self.updates[0])

    @cached_property
    def _inner(self) -> Tensor:
        """float64 ``[n, n]``: inner products of the rows."""
        inner = torch.zeros(len(self.updates), len(self.updates), dtype=torch.float64)
        for place in self.places:
            inner += inner_products(*FactorStack.of(place, self.model, self.updates).changes())
        for part in self._others():
            inner += part.double() @ part.double().T
        return (inner + inner.T) / 2

    @cached_property
    def _rest(self) -> tuple[slice, ...]:
        """The coordinates between the factors."""
        factors = [one for place in self.places for one in (place.a, place.b)]
        taken = sorted((one.start, one.stop) for one in (*factors, *self.unseen))
        starts = [0, *(stop for _, stop in taken)]
        stops = [*(start for start, _ in taken), self.updates.shape[1]]
        return tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop)

    def _others(self) -> Iterator[Tensor]:
        for rest in self._rest:
            part = self.updates[:, rest]
            yield from (part[:, block] for block in walk(part))
