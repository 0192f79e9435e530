"""Multi-layer perceptrons: the clients of a chunk all at once, by batched products and a hand-written backward pass.

The first layer is kept in *delta form* if that is cheaper; each client holds its own copy of the others (`dense_layers`).
Chunks of clients go to threads (`parallel`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Examples, LocalPlan
from fedguard.tasks.compute import Compute
from fedguard.tasks.engines.dense_layers import ClientWeights, DeltaLayer, InputLayer, Parameters
from fedguard.tasks.engines.parallel import spread

#: Multiplications of the first layer that are worth another thread: about a millisecond.
THREAD_WORK = 1 << 23


@dataclass(frozen=True)
class _DenseWork:
    """One client's round: its update goes to ``row`` of the output.

    ``used`` lists the examples that ``batches`` (int64 ``[steps, batch]``, -1 for none) index, None for all of the client's.
    """

    row: int
    client: int
    batches: NDArray[np.int64]
    used: NDArray[np.int64] | None
    count: int


class DenseEngine:
    """SGD for the network Flatten, Linear, ReLU, ..., Linear.

    Args:
        widths: ``(inputs, hidden ..., classes)``.
        parts: each client's examples.
        compute: the memory that the engine may take.
    """

    def __init__(self, widths: tuple[int, ...], parts: Sequence[Examples], compute: Compute) -> None:
        self._widths, self._compute = widths, compute
        # Up to as many examples as inputs, a client's delta form costs less than holding its weights.
        self._delta_up_to = widths[0]
        self._x = [part.x.flatten(1) for part in parts]
        self._y = [part.y for part in parts]
        self._grams: dict[int, Tensor] = {}
        self._kept, self._keeping = 0, threading.Lock()

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[NDArray[np.int64]],
        plan: LocalPlan,
        out: Tensor,
    ) -> None:
        given = enumerate(zip(clients, schedules, strict=True))
        works = [self._work(row, client, batches) for row, (client, batches) in given]
        works.sort(key=lambda work: -len(work.batches))  # those at work in a step are a prefix
        spread(lambda chunk: self._train_chunk(model, chunk, plan, out), self._chunks(works, plan))

    def _work(self, row: int, client: int, batches: NDArray[np.int64]) -> _DenseWork:
        size = len(self._y[client])
        # The Gram matrix of all examples can be kept over the rounds; where few are used, reading fewer is worth more
        if 2 * batches.size > size:
            return _DenseWork(row, client, batches, None, size)
        used = np.unique(batches[batches >= 0])  # few: the others need not be read
        return _DenseWork(row, client, np.where(batches < 0, -1, np.searchsorted(used, batches)), used, len(used))

    def _chunks(self, works: Sequence[_DenseWork], plan: LocalPlan) -> list[list[_DenseWork]]:
        """Runs of ``works`` of about equal cost; the chunks of all threads together fit into half of the memory."""
        # The other half of the memory is for the Gram matrices that are kept
        threads = torch.get_num_threads()
        inputs = sum(work.count for work in works) * self._widths[0]
        share = inputs / max(1, min(threads, inputs * self._widths[1] // THREAD_WORK))
        chunks: list[list[_DenseWork]] = [[]]
        largest, done = 0, 0
        for work in works:
            largest = max(largest, work.count)
            floats = (len(chunks[-1]) + 1) * self._floats(largest, work, plan)
            if chunks[-1] and (done >= share * len(chunks) or floats > self._compute.floats // 2 // threads):
                chunks.append([])
                largest = work.count
            chunks[-1].append(work)
            done += work.count * self._widths[0]
        return chunks

    def _floats(self, examples: int, work: _DenseWork, plan: LocalPlan) -> int:
        """Working memory of one client, in floats; ``examples`` is the largest number that a client of its chunk uses."""
        inputs, width = self._widths[:2]
        batch: int = work.batches.shape[1]
        copies = 2 + 2 * (plan.momentum > 0) + (plan.corrections is not None)
        later = copies * sum((given + 1) * made for given, made in itertools.pairwise(self._widths[1:]))
        signals = 2 * batch * sum(self._widths[1:]) + 4 * work.batches.size
        if examples > self._delta_up_to:
            return later + signals + copies * (inputs + 1) * width + (examples + batch) * inputs
        # Twice m^2: the Gram matrix, and its rows in the order of use (`RowOrder`)
        own = 0 if work.used is None else inputs
        return later + signals + examples * (own + 2 * examples + (copies + 2) * width)

    def _train_chunk(self, model: Tensor, works: Sequence[_DenseWork], plan: LocalPlan, out: Tensor) -> None:
        """Write each client's update. Signals are gradients times ``-lr``, so that a step only adds."""
        order = join_schedules([work.batches for work in works])
        batches = torch.from_numpy(order).to(model.device)
        # Padding reads example 0 with a share of 0: batches keep one shape, and it adds nothing
        rows, used = batches.clamp(min=0), (batches >= 0).to(model.dtype)
        examples = [self._examples(work) for work in works]
        labels = torch.stack([y[own] for (_, y), own in zip(examples, rows, strict=True)])
        # The mean over the examples that a batch has; the clamp is for steps that a client no longer takes
        share = used / used.sum(2, keepdim=True).clamp(min=1) * -plan.lr
        # Batches are filled from the left, so an empty first place means that the client has stopped
        active = (order[:, :, 0] >= 0).sum(0).tolist()
        first, hidden = self._layers(model, works, [x for x, _ in examples], rows, plan)
        for step, now in enumerate(active):
            inputs: list[Tensor] = []
            signal = first.forward(step, now)
            for layer in hidden:
                # The output of the ReLU is positive where its input was, so the input need not be kept
                inputs.append(signal.relu_())
                signal = layer.forward(signal)
            signal = loss_signal(signal, labels[:now, step], share[:now, step])
            for layer, given in zip(reversed(hidden), reversed(inputs), strict=True):
                # Before the layer moves: the gradient belongs to the weights of the forward pass
                below = layer.back(signal)
                torch.ops.aten.threshold_backward.grad_input(below, given, 0, grad_input=below)
                layer.descend(given, signal)
                signal = below
            first.descend(step, signal)
        offset = first.write(out, [work.row for work in works])
        for layer in hidden:
            offset = layer.write(out, [work.row for work in works], offset)

    def _examples(self, work: _DenseWork) -> tuple[Tensor, Tensor]:
        x, y = self._x[work.client], self._y[work.client]
        if work.used is None:
            return x, y
        used = torch.from_numpy(work.used).to(x.device)
        return x[used], y[used]

    def _layers(
        self, model: Tensor, works: Sequence[_DenseWork], xs: Sequence[Tensor], rows: Tensor, plan: LocalPlan
    ) -> tuple[DeltaLayer | InputLayer, list[ClientWeights]]:
        """The first layer and the later ones, before the first step."""
        start = model if model.dim() == 1 else model[[work.row for work in works]]
        (weight, bias), *later = _parameters(start, self._widths)
        corrections = self._corrections(works, plan, model)
        hidden = [
            ClientWeights(start, len(works), plan, [own[number] for own in corrections])
            for number, start in enumerate(later, start=1)
        ]
        first = [own[0] for own in corrections]
        if max(len(x) for x in xs) > self._delta_up_to:
            return InputLayer(ClientWeights((weight, bias), len(works), plan, first), xs, rows), hidden
        # After a single step A is written, but no output is computed from it, so no Gram matrix is needed
        grams = [self._gram(work, x) for work, x in zip(works, xs, strict=True)] if rows.shape[1] > 1 else []
        steps = [len(work.batches) for work in works]
        starts = [(weight, bias)] * len(works) if model.dim() == 1 else list(zip(weight, bias, strict=True))
        return DeltaLayer(starts, xs, grams, rows, steps, plan, first), hidden

    def _corrections(self, works: Sequence[_DenseWork], plan: LocalPlan, model: Tensor) -> list[list[Parameters]]:
        """Corrections by client and layer; an empty list if no client of the chunk has one."""
        given = plan.corrections or {}
        if not any(work.client in given for work in works):
            return []
        none = model.new_zeros(model.shape[-1])
        return [_parameters(given.get(work.client, none), self._widths) for work in works]

    def _gram(self, work: _DenseWork, x: Tensor) -> Tensor:
        """``X X^T + 1``, float32 ``[m, m]``. The matrix of all examples is kept for later rounds, up to half of the memory."""
        if work.used is None and work.client in self._grams:
            return self._grams[work.client]
        gram = torch.addmm(x.new_ones(1), x, x.T)
        with self._keeping:
            if work.used is None and self._kept + gram.numel() <= self._compute.floats // 2:
                self._kept += gram.numel()
                self._grams[work.client] = gram
        return gram


def loss_signal(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The gradient of the loss, ``[c, batch, classes]``: (softmax - one-hot) times each example's share."""
    # A softmax over the first of three dimensions is several times faster than one over a short last dimension
    signal = torch.softmax(logits.permute(2, 0, 1), 0)
    signal.scatter_add_(0, labels[None], signal.new_full((1, 1, 1), -1.0).expand(1, *labels.shape))
    return torch.mul(
        signal.permute(1, 2, 0), share[..., None], out=torch.empty_like(logits, memory_format=torch.contiguous_format)
    )


def _parameters(flat: Tensor, widths: tuple[int, ...]) -> list[Parameters]:
    """Weights ``[o, i]`` and biases ``[o]`` of each layer, as views of a vector; ``[c, o, i]`` and ``[c, o]`` for c vectors."""
    layers, offset = [], 0
    for inputs, outputs in itertools.pairwise(widths):
        weight = flat[..., offset : offset + inputs * outputs].view(*flat.shape[:-1], outputs, inputs)
        offset += inputs * outputs
        layers.append((weight, flat[..., offset : offset + outputs]))
        offset += outputs
    return layers


def join_schedules(schedules: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """``[clients, steps, batch]``: schedules beside each other, filled up with -1."""
    steps, batch = (max(schedule.shape[axis] for schedule in schedules) for axis in (0, 1))
    joined = np.full((len(schedules), steps, batch), -1)
    for row, schedule in zip(joined, schedules, strict=True):
        row[: schedule.shape[0], : schedule.shape[1]] = schedule
    return joined
