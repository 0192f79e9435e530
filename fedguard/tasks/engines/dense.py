"""Multi-layer perceptrons: all clients at once, by batched products and a hand-written backward pass.

The first layer is kept in *delta form* where that is cheaper. All clients start from the same W, and every gradient of
the first layer is a combination of the client's own inputs, so W_t = W + A_t^T X with one row of A per example.
Then the layer's output on examples I is ``Z[I] + (K[I, :] + 1) A_t`` with ``Z = X W^T + b`` one product for all clients,
``K = X X^T`` fixed over the rounds, and the 1 carrying the bias. No client's weights are ever held; ``A^T X`` is formed
once, at the end. Momentum is linear and acts on A just as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot, softmax

from fedguard.contracts import Examples, LocalPlan

#: Floats of working memory that one chunk of clients may take.
CHUNK_FLOATS = 32 << 20


class DenseEngine:
    """SGD for the network Flatten, Linear, ReLU, ..., Linear.

    Args:
        widths: ``(inputs, hidden ..., classes)``.
        parts: each client's examples.
    """

    def __init__(self, widths: tuple[int, ...], parts: Sequence[Examples]) -> None:
        self._widths = widths
        # Up to as many examples as inputs, a client's delta form costs less than holding its weights.
        self._delta_up_to = widths[0]
        self._x = torch.cat([part.x.flatten(1) for part in parts])
        self._y = torch.cat([part.y for part in parts])
        self._sizes = [len(part) for part in parts]
        sizes = torch.tensor(self._sizes)
        self._offsets = sizes.cumsum(0) - sizes
        self._kept: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[NDArray[np.int64]],
        plan: LocalPlan,
        out: Tensor,
    ) -> None:
        longest_first = sorted(range(len(clients)), key=lambda i: -len(schedules[i]))
        for chunk in self._chunks(longest_first, clients, schedules):
            batches = _joined([schedules[i] for i in chunk])
            moved = self._train_chunk(model, tuple(clients[i] for i in chunk), batches, plan)
            out[chunk] = moved

    def _chunks(
        self, order: list[int], clients: Sequence[int], schedules: Sequence[NDArray[np.int64]]
    ) -> Iterator[list[int]]:
        """Runs of ``order`` whose working memory stays within `CHUNK_FLOATS`, one client at least."""
        dim = sum((inputs + 1) * outputs for inputs, outputs in zip(self._widths, self._widths[1:], strict=False))
        chunk: list[int] = []
        largest = 0
        for i in order:
            largest = max(largest, self._sizes[clients[i]])
            if chunk and (len(chunk) + 1) * (2 * dim + largest * (self._widths[0] + largest)) > CHUNK_FLOATS:
                yield chunk
                chunk, largest = [], self._sizes[clients[i]]
            chunk.append(i)
        yield chunk

    def _train_chunk(self, model: Tensor, clients: tuple[int, ...], batches: Tensor, plan: LocalPlan) -> Tensor:
        """float32 ``[clients, d]``: what each moved by. ``batches`` int64 ``[clients, steps, batch]``, longest first."""
        count, steps, _ = batches.shape
        layers = _layers(model, self._widths)
        first = self._first_layer(layers[0], clients, batches, plan)
        hidden = [_ClientWeights(weight, bias, count, plan) for weight, bias in layers[1:]]
        labels = self._y[self._offsets[list(clients)][:, None, None] + batches.clamp(min=0)]
        targets = one_hot(labels, self._widths[-1]).to(model.dtype)
        used = (batches >= 0).to(model.dtype)
        share = used / used.sum(2, keepdim=True).clamp(min=1)  # each example's weight in its batch's mean loss
        active = (batches[:, :, 0] >= 0).sum(0).tolist()
        for step in range(steps):
            now = active[step]
            inputs: list[Tensor] = []
            signal = first.forward(step, now)
            for layer in hidden:
                inputs.append(signal.relu())
                signal = layer.forward(inputs[-1])
            signal = softmax(signal, dim=2).sub_(targets[:now, step]).mul_(share[:now, step, :, None])
            for layer, given in zip(reversed(hidden), reversed(inputs), strict=True):
                below = layer.back(signal) * (given > 0)
                layer.descend(given, signal)
                signal = below
            first.descend(step, signal)
        return torch.cat([first.moved(), *(layer.moved() for layer in hidden)], dim=1)

    def _first_layer(
        self, layer: tuple[Tensor, Tensor], clients: tuple[int, ...], batches: Tensor, plan: LocalPlan
    ) -> _DeltaLayer | _InputLayer:
        offsets = self._offsets[list(clients)]
        count, steps, batch = batches.shape
        if steps == 1:  # every example at most once: the batch itself is all there is
            x = self._x[offsets[:, None] + batches[:, 0].clamp(min=0)]
            return _DeltaLayer(*layer, x, None, torch.arange(batch).expand(count, 1, batch), plan)
        if max(self._sizes[client] for client in clients) <= self._delta_up_to:
            return _DeltaLayer(*layer, *self._inputs(clients), batches.clamp(min=0), plan)
        return _InputLayer(_ClientWeights(*layer, count, plan), self._x, offsets[:, None, None] + batches.clamp(min=0))

    def _inputs(self, clients: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """X float32 ``[clients, m, p]``, filled up with copies of the last row, and ``X X^T + 1`` ``[clients, m, m]``.

        Both are kept for the next round of the same clients, as long as they fit `CHUNK_FLOATS`.
        """
        if clients not in self._kept:
            sizes = torch.tensor([self._sizes[client] for client in clients])[:, None]
            rows = torch.arange(int(sizes.max())).expand(len(clients), -1).minimum(sizes - 1)
            x = self._x[self._offsets[list(clients)][:, None] + rows]
            products = torch.baddbmm(x.new_ones(1), x, x.transpose(1, 2))
            held = sum(part.numel() for parts in self._kept.values() for part in parts)
            if held + x.numel() + products.numel() > CHUNK_FLOATS:
                self._kept.clear()
            self._kept[clients] = (x, products)
        return self._kept[clients]


class _DeltaLayer:
    """The first layer as W + A^T X. ``x`` ``[c, m, p]``, ``products`` X X^T + 1, ``rows`` ``[c, steps, batch]`` into x."""

    def __init__(
        self, weight: Tensor, bias: Tensor, x: Tensor, products: Tensor | None, rows: Tensor, plan: LocalPlan
    ) -> None:
        self._x, self._products, self._rows, self._plan = x, products, rows, plan
        self._start = x @ weight.T + bias
        self._a = torch.zeros_like(self._start)
        self._velocity = torch.zeros_like(self._start) if plan.momentum else None

    def forward(self, step: int, now: int) -> Tensor:
        rows = self._rows[:now, step]
        start = self._start[:now].gather(1, rows[..., None].expand(-1, -1, self._start.shape[2]))
        if self._products is None or step == 0:
            return start
        met = self._products[:now].gather(1, rows[..., None].expand(-1, -1, self._products.shape[2]))
        return torch.baddbmm(start, met, self._a[:now])

    def descend(self, step: int, signal: Tensor) -> None:
        now = len(signal)
        rows = self._rows[:now, step, :, None].expand(-1, -1, signal.shape[2])
        if self._velocity is None:
            self._a[:now].scatter_add_(1, rows, signal * -self._plan.lr)
            return
        velocity = self._velocity[:now]
        velocity *= self._plan.momentum
        velocity.scatter_add_(1, rows, signal)
        self._a[:now].add_(velocity, alpha=-self._plan.lr)

    def moved(self) -> Tensor:
        return torch.cat([(self._a.transpose(1, 2) @ self._x).flatten(1), self._a.sum(1)], dim=1)


class _ClientWeights:
    """A layer of which each client holds its own copy: weights ``[c, o, i]`` and biases ``[c, o]``."""

    def __init__(self, weight: Tensor, bias: Tensor, count: int, plan: LocalPlan) -> None:
        self._initial, self._plan = (weight, bias), plan
        self._weight, self._bias = weight.repeat(count, 1, 1), bias.repeat(count, 1)
        self._velocity = (torch.zeros_like(self._weight), torch.zeros_like(self._bias)) if plan.momentum else None

    def forward(self, given: Tensor) -> Tensor:
        now = len(given)
        return torch.baddbmm(self._bias[:now, None], given, self._weight[:now].transpose(1, 2))

    def back(self, signal: Tensor) -> Tensor:
        return signal @ self._weight[: len(signal)]

    def descend(self, given: Tensor, signal: Tensor) -> None:
        now, lr = len(signal), self._plan.lr
        if self._velocity is None:
            self._weight[:now].baddbmm_(signal.transpose(1, 2), given, alpha=-lr)
            self._bias[:now].sub_(signal.sum(1), alpha=lr)
            return
        weight_velocity, bias_velocity = (part[:now] for part in self._velocity)
        weight_velocity.baddbmm_(signal.transpose(1, 2), given, beta=self._plan.momentum)
        bias_velocity.mul_(self._plan.momentum).add_(signal.sum(1))
        self._weight[:now].sub_(weight_velocity, alpha=lr)
        self._bias[:now].sub_(bias_velocity, alpha=lr)

    def moved(self) -> Tensor:
        weight, bias = self._initial
        return torch.cat([(self._weight - weight).flatten(1), self._bias - bias], dim=1)


class _InputLayer:
    """A first layer held by each client like any other, for clients with many more examples than inputs."""

    def __init__(self, weights: _ClientWeights, x: Tensor, rows: Tensor) -> None:
        self._weights, self._x, self._rows = weights, x, rows
        self._given = x[:0]

    def forward(self, step: int, now: int) -> Tensor:
        self._given = self._x[self._rows[:now, step]]
        return self._weights.forward(self._given)

    def descend(self, step: int, signal: Tensor) -> None:
        self._weights.descend(self._given, signal)

    def moved(self) -> Tensor:
        return self._weights.moved()


def _layers(model: Tensor, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weights ``[o, i]`` and biases ``[o]`` of each layer, as views of the flat model."""
    layers, offset = [], 0
    for inputs, outputs in itertools.pairwise(widths):
        weight = model[offset : offset + inputs * outputs].view(outputs, inputs)
        offset += inputs * outputs
        layers.append((weight, model[offset : offset + outputs]))
        offset += outputs
    return layers


def _joined(schedules: Sequence[NDArray[np.int64]]) -> Tensor:
    """int64 ``[clients, steps, batch]``: schedules beside each other, filled up with -1."""
    steps, batch = (max(schedule.shape[axis] for schedule in schedules) for axis in (0, 1))
    joined = np.full((len(schedules), steps, batch), -1)
    for row, schedule in zip(joined, schedules, strict=True):
        row[: schedule.shape[0], : schedule.shape[1]] = schedule
    return torch.from_numpy(joined)
