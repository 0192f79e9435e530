"""Convolutions with ReLU and pooling, for several clients at once: each client's weights are one group of a convolution.

Signals and activations are ``[batch, height, width, c, channels]`` with c the number of clients: channels are last in memory.
The maximum commutes with the bias and the ReLU and is taken first, so that they process fewer pixels. As in `dense_layers`,
signals have a factor ``-lr``, and the clients that still take steps are the first of the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from fedguard.contracts import LocalPlan
from fedguard.tasks.engines.conv_forms import Blocks, Pixels
from fedguard.tasks.engines.conv_shapes import Convolution
from fedguard.tasks.engines.dense_layers import ClientWeights, Parameters


class ConvLayer:
    """Convolution, pooling, ReLU.

    Args:
        shape: shape of the layer.
        form: form in which it is computed.
        weights: ``[c, o, i k k]`` and biases.
        first: whether it is the first layer, which passes no signal on.
    """

    def __init__(self, shape: Convolution, form: Blocks | Pixels, weights: ClientWeights, first: bool) -> None:
        self._shape, self._form, self._weights, self._first = shape, form, weights, first

    def prepare(self, given: Tensor) -> Tensor:
        """Inputs ``[batch, height, width, c, channels]`` in the form that `forward` requires."""
        return self._form.inputs(given)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the layer for prepared inputs, ``[batch, height, width, c, channels]``."""
        clients = x.shape[3]
        weight, bias = self._weights.of(clients)
        self._x, self._kernel = _channels_first(x), self._form.kernel(weight)
        z = conv2d(self._x, self._kernel, padding=self._form.padding, groups=clients).permute(0, 2, 3, 1).contiguous()
        self._z = z.view(*z.shape[:3], clients, -1)
        pixels, bias = self._form.windows(self._z), self._form.pad_bias(bias)
        # Without the maximum z is overwritten: the backward pass needs only what comes after the ReLU
        if self._shape.pool == "max":
            self._columns = torch.maximum(pixels[..., 0, :], pixels[..., 1, :])
            self._made = torch.maximum(self._columns[..., 0, :], self._columns[..., 1, :]).add_(bias).relu_()
        elif self._shape.pool == "average":
            self._made = pixels.add_(bias[:, None, None]).relu_().mean((-3, -2))
        else:
            self._made = pixels.add_(bias).relu_()
        return self._made

    def descend(self, signal: Tensor) -> Tensor | None:
        """Take a step, and return the signal for the layer below; None in the first layer."""
        clients = signal.shape[3]
        if self._shape.pool != "average":
            signal = torch.ops.aten.threshold_backward(signal, self._made, 0)
        # The bias was added beside the ReLU: after the maximum, but before the average
        below = self._before_pooling(signal)
        bias = below if self._shape.pool == "average" else signal
        sums = bias.sum((0, 1, 2)).view(clients, -1, self._form.channels).sum(1)[:, : self._shape.outputs]
        below = _channels_first(below)
        known = below, self._x, self._kernel, self._form.padding, clients
        # Before the step: the gradient belongs to the kernel of the forward pass, which may be a view of the weights
        given = None if self._first else self._form.restore_signals(_gradient(*known, 0))
        self._weights.descend_by(self._form.weights(_gradient(*known, 1), clients), sums)
        return given

    def _before_pooling(self, signal: Tensor) -> Tensor:
        """The signal ``[batch, height, width, c, channels]`` at the output of the convolution, before pooling.

        With the maximum, the first of the largest pixels, row by row, receives it, as in torch.
        """
        if self._shape.pool is None:
            return signal
        below = self._form.empty_like(self._z)
        pixels, into = self._form.windows(self._z), self._form.windows(below)
        if self._shape.pool == "average":
            quarters = (signal / 4)[..., None, None, :].expand(pixels.shape)
            torch.ops.aten.threshold_backward.grad_input(quarters, pixels, 0, grad_input=into)
            return below
        columns = torch.empty_like(self._columns)
        _share(signal, self._columns, columns)
        _share(columns, pixels, into)
        return below


class ImageWeights(ClientWeights):
    """The first dense layer of one client, as a convolution over the whole image, which is faster than a narrow product.

    Args:
        image: channels, height and width.
        start: weights, with columns in the order of `channels_last`, and biases.
        corrections: in the same order.
    """

    def __init__(
        self, image: tuple[int, int, int], start: Parameters, plan: LocalPlan, corrections: Sequence[Parameters]
    ) -> None:
        super().__init__(start, 1, plan, corrections)
        self._image = image

    def forward(self, given: Tensor) -> Tensor:
        weight, bias = self.of(1)
        self._given = self._images(given[0])
        return conv2d(self._given, self._images(weight[0]), bias[0]).flatten(1)[None]

    def back(self, signal: Tensor) -> Tensor:
        signals, weight = signal[0, :, :, None, None], self._images(self.of(1)[0][0])
        return _gradient(signals, self._given, weight, 0, 1, 0).flatten(1)[None]

    def write(self, out: Tensor, rows: Sequence[int], offset: int) -> int:
        weight, bias = self.of(1)
        start, start_bias = self._start[0][0], self._start[1][0, 0]
        step = self._step
        end = offset + start.numel()
        channels, height, width = self._image
        into = out[rows[0], offset:end].view(-1, channels, height, width)
        into_bias = out[rows[0], end : end + len(start_bias)]
        if step is None:
            torch.sub(self._images(weight[0]), self._images(start), out=into)
            torch.sub(bias[0], start_bias, out=into_bias)
        else:
            into.copy_(self._images(step[0][0]))
            into_bias.copy_(step[1][0, 0])
        return end + len(start_bias)

    def _images(self, rows: Tensor) -> Tensor:
        channels, height, width = self._image
        return _channels_first(rows.view(-1, height, width, 1, channels))


def channels_last(parameters: Parameters, image: tuple[int, int, int]) -> Parameters:
    """The weights ``[o, i]`` of a layer that reads ``image`` (channels, height, width), for inputs with channels last."""
    weight, bias = parameters
    return weight.view(-1, *image).permute(0, 2, 3, 1).flatten(1), bias


def _share(signal: Tensor, given: Tensor, into: Tensor) -> None:
    """Hand the signal to the larger of ``given[..., 0, :]`` and ``given[..., 1, :]``, to the first if they are equal."""
    first = into[..., 0, :]
    torch.ge(given[..., 0, :], given[..., 1, :], out=first).mul_(signal)
    # Exact, since `first` is the signal or 0
    torch.sub(signal, first, out=into[..., 1, :])


def _channels_first(signal: Tensor) -> Tensor:
    """``[batch, c channels, height, width]``, as a view: the channels stay last in memory.

    The strides are explicit, because for a single channel torch would take any others for channels first.
    """
    batch, height, width, clients, channels = signal.shape
    depth = clients * channels
    return signal.as_strided((batch, depth, height, width), (height * width * depth, 1, width * depth, depth))


def _gradient(signal: Tensor, x: Tensor, kernel: Tensor, padding: int, clients: int, of: int) -> Tensor:
    """A convolution's gradient by its inputs (0) or its kernel (1), channels last. Both in one call take longer."""
    wanted = [of == 0, of == 1, False]
    found = torch.ops.aten.convolution_backward(
        signal, x, kernel, None, [1, 1], [padding, padding], [1, 1], False, [0, 0], clients, wanted
    )
    gradient: Tensor = found[of]
    return gradient.permute(0, 2, 3, 1)
