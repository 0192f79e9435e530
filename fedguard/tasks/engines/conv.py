"""Convolutional networks: a few clients at once, by channels-last convolutions and a hand-written backward pass.

Networks with few channels are computed in blocks, several clients in one convolution; others client by client, one in each
chunk (`conv_forms`). The gradient with respect to the inputs is not needed. Chunks go to threads (`parallel`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Examples, LocalPlan
from fedguard.tasks.compute import Compute
from fedguard.tasks.engines.conv_forms import Blocks, Pixels
from fedguard.tasks.engines.conv_layers import ConvLayer, ImageWeights, channels_last
from fedguard.tasks.engines.conv_shapes import ConvShapes
from fedguard.tasks.engines.dense import join_schedules, loss_signal
from fedguard.tasks.engines.dense_layers import ClientWeights, Parameters, holds_velocity, to_index_tensor
from fedguard.tasks.engines.parallel import spread

#: Clients in a chunk of a network with few channels: more do not train faster.
TOGETHER = 8


@dataclass(frozen=True)
class _ConvWork:
    """One client's round: its update goes to ``row`` of the output.

    ``used`` lists the examples that the client trains on; ``batches`` (int64 ``[steps, batch]``, -1 for none) indexes them.
    """

    row: int
    client: int
    batches: NDArray[np.int64]
    used: NDArray[np.int64]


class ConvEngine:
    """SGD for the network Conv2d, ReLU, pooling, ..., Flatten, Linear, ReLU, ..., Linear.

    Args:
        shapes: the shapes of the network.
        parts: each client's examples.
        compute: the memory that the engine may take.
    """

    def __init__(self, shapes: ConvShapes, parts: Sequence[Examples], compute: Compute) -> None:
        self._shapes, self._parts, self._compute = shapes, parts, compute
        where = parts[0].x.device
        self._forms = [Blocks(layer, where) if shapes.narrow else Pixels(layer) for layer in shapes.convolutions]

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[NDArray[np.int64]],
        plan: LocalPlan,
        out: Tensor,
    ) -> None:
        given = enumerate(zip(clients, schedules, strict=True))
        works = [_work(row, client, batches) for row, (client, batches) in given]
        works.sort(key=lambda work: work.batches.shape, reverse=True)  # those at work in a step are a prefix
        chunks = -(-len(works) // self._together(works, plan, model.shape[-1]))
        bounds = [number * len(works) // chunks for number in range(chunks + 1)]
        # Views of one model serve all chunks: `ClientWeights` copies them before they change
        shared = self._parameters(model) if model.dim() == 1 else None
        spread(
            lambda chunk: self._train_chunk(shared or self._parameters(self._own(model, chunk)), chunk, plan, out),
            [works[begin:end] for begin, end in itertools.pairwise(bounds)],
        )

    def _together(self, works: Sequence[_ConvWork], plan: LocalPlan, dim: int) -> int:
        """Clients in a chunk, at least 1: the chunks of all threads together fit into half of the memory if possible."""
        if not self._shapes.narrow:
            return 1
        batch = max(work.batches.shape[1] for work in works)
        examples = max(len(work.used) for work in works)
        copies = 1 + holds_velocity(plan) + (plan.corrections is not None)
        floats = (
            copies * dim + 4 * batch * sum(form.floats for form in self._forms) + 3 * examples * self._forms[0].floats
        )
        room: int = self._compute.floats // 2 // torch.get_num_threads() // floats
        return min(TOGETHER, max(1, room))

    def _train_chunk(self, starts: list[Parameters], works: Sequence[_ConvWork], plan: LocalPlan, out: Tensor) -> None:
        """Write each client's update. Signals are gradients times ``-lr``, so that a step only adds."""
        corrections = []
        if any(work.client in (plan.corrections or {}) for work in works):
            given, none = plan.corrections or {}, torch.zeros_like(out[0])
            corrections = [self._parameters(given.get(work.client, none)) for work in works]
        layers = _Layers(self._shapes, self._forms, starts, len(works), plan, corrections)
        where = starts[0][0].device
        examples = [self._parts[work.client][torch.from_numpy(work.used).to(where)] for work in works]
        # Once for all steps: blocks of an image do not depend on weights
        x = layers.prepare_images(torch.cat([part.x for part in examples]))
        order = join_schedules([work.batches for work in works])
        batches = torch.from_numpy(order).to(where)
        used = batches >= 0
        sizes = to_index_tensor([0, *(len(part) for part in examples)], x)
        rows = batches.clamp(min=0) + sizes.cumsum(0)[:-1, None, None]
        labels = torch.cat([part.y for part in examples])[rows]
        share = used.to(x.dtype) / used.sum(2, keepdim=True).clamp(min=1) * -plan.lr
        for step, now in enumerate((order[:, :, 0] >= 0).sum(0).tolist()):
            logits = layers.forward(_beside(x, rows[:now, step]))
            layers.descend(loss_signal(logits, labels[:now, step], share[:now, step]))
        layers.write(out, [work.row for work in works])

    def _own(self, models: Tensor, works: Sequence[_ConvWork]) -> Tensor:
        """The rows of a chunk's clients; a vector if the network is wide, since a chunk has one client then."""
        rows = [work.row for work in works]
        return models[rows] if self._shapes.narrow else models[rows[0]]

    def _parameters(self, flat: Tensor) -> list[Parameters]:
        """Weights ``[o, i]`` and biases ``[o]`` of each layer, as views of a vector if possible; or of several vectors."""
        sizes = [(layer.outputs, layer.inputs * layer.kernel**2) for layer in self._shapes.convolutions]
        sizes += [(made, given) for given, made in itertools.pairwise(self._shapes.widths)]
        layers: list[Parameters] = []
        offset = 0
        for outputs, inputs in sizes:
            weight = flat[..., offset : offset + outputs * inputs].view(*flat.shape[:-1], outputs, inputs)
            offset += outputs * (inputs + 1)
            layers.append((weight, flat[..., offset - outputs : offset]))
        if not self._shapes.narrow:
            dense = len(self._forms)
            layers[dense] = channels_last(layers[dense], self._shapes.image)
        return layers


class _Layers:
    """All layers of a chunk; `ConvEngine._parameters` gives their parameters."""

    def __init__(
        self,
        shapes: ConvShapes,
        forms: Sequence[Blocks | Pixels],
        starts: Sequence[Parameters],
        count: int,
        plan: LocalPlan,
        corrections: Sequence[Sequence[Parameters]],
    ) -> None:
        self._image, self._narrow, done = shapes.image, shapes.narrow, len(forms)
        own = [[client[number] for client in corrections] for number in range(len(starts))]
        weights: list[ClientWeights] = []
        for number, (start, mine) in enumerate(zip(starts, own, strict=True)):
            if number == done and not shapes.narrow:
                weights.append(ImageWeights(shapes.image, start, plan, mine))
            else:
                weights.append(ClientWeights(start, count, plan, mine))
        self._weights, self._dense = weights, weights[done:]
        self._convolutions = [
            ConvLayer(shape, form, held, number == 0)
            for number, (shape, form, held) in enumerate(zip(shapes.convolutions, forms, weights[:done], strict=True))
        ]

    def prepare_images(self, x: Tensor) -> Tensor:
        """Images ``[m, channels, height, width]`` as ``[m, height, width, 1, channels]``, and as the first layer takes them."""
        return self._convolutions[0].prepare(x.permute(0, 2, 3, 1)[:, :, :, None])

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``[c, batch, classes]`` of prepared inputs."""
        signal = self._convolutions[0].forward(x)
        for layer in self._convolutions[1:]:
            signal = layer.forward(layer.prepare(signal))
        self._seen, signal = signal.shape, self._flat(signal)
        self._inputs = [signal]
        for dense in self._dense[:-1]:
            self._inputs.append(dense.forward(self._inputs[-1]).relu_())
        return self._dense[-1].forward(self._inputs[-1])

    def descend(self, signal: Tensor) -> None:
        """Take a step; the signal ``[c, batch, classes]`` is spent."""
        for number, (layer, given) in reversed(list(enumerate(zip(self._dense, self._inputs, strict=True)))):
            below = layer.back(signal)
            # The first dense layer reads the last convolution, which takes back its ReLU itself
            if number:
                torch.ops.aten.threshold_backward.grad_input(below, given, 0, grad_input=below)
            layer.descend(given, signal)
            signal = below
        back: Tensor | None = self._unflat(signal)
        for convolution in reversed(self._convolutions):
            assert back is not None
            back = convolution.descend(back)

    def write(self, out: Tensor, rows: Sequence[int]) -> None:
        """Write each client's update to its row of ``out``."""
        offset = 0
        for weights in self._weights:
            offset = weights.write(out, rows, offset)

    def _flat(self, signal: Tensor) -> Tensor:
        """``[c, batch, i]`` of ``[batch, height, width, c, channels]``."""
        if not self._narrow:
            return signal.flatten(1)[None]
        return signal[..., : self._image[0]].permute(3, 0, 4, 1, 2).flatten(2)

    def _unflat(self, signal: Tensor) -> Tensor:
        """Back from `_flat`."""
        if not self._narrow:
            return signal.view(self._seen)
        # Channels that only fill up blocks get no gradient
        back = signal.new_zeros(self._seen)
        back[..., : self._image[0]] = signal.view(*signal.shape[:2], *self._image).permute(1, 3, 4, 0, 2)
        return back


def _work(row: int, client: int, batches: NDArray[np.int64]) -> _ConvWork:
    used, places = np.unique(batches.clip(min=0), return_inverse=True)
    return _ConvWork(row, client, np.where(batches < 0, -1, places.reshape(batches.shape)), used)


def _beside(x: Tensor, rows: Tensor) -> Tensor:
    """``[batch, height, width, c, channels]``: rows ``[c, batch]`` of ``x [m, height, width, 1, channels]``."""
    clients, batch = rows.shape
    taken = x.index_select(0, rows.flatten()).view(clients, batch, *x.shape[1:])
    return taken.squeeze(4).permute(1, 2, 3, 0, 4).contiguous()
