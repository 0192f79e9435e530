"""The two forms in which a convolution is computed.

*Pixels*: the convolution as it is. *Blocks*, for few channels: a k x k convolution with 2 x 2 pooling is one convolution of the
2 x 2 blocks of the input, with 4 I channels. Its kernel has about (k + 1) / 2 blocks a side and gives the four pixels of a
window as 4 O channels; it holds the true weights four times, shifted, and zeros.

In blocks the channels are filled up with zeros to multiples of 4, because convolutions are fast on multiples of 16 alone.
The ReLU passes nothing back to them, so they stay 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedguard.tasks.engines.conv_shapes import Convolution

#: Rows and columns of the pixels in a block.
_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))


class Pixels:
    """The convolution as it is.

    Attributes:
        padding: zeros on each side in the convolution as it is computed.
        channels: number of output channels.
        floats: size of inputs and outputs for one example.
    """

    def __init__(self, shape: Convolution) -> None:
        self._shape = shape
        self.padding, self.channels = shape.padding, shape.outputs
        height, width = (side + 2 * shape.padding - shape.kernel + 1 for side in shape.size)
        self.floats = shape.inputs * shape.size[0] * shape.size[1] + shape.outputs * height * width

    def inputs(self, given: Tensor) -> Tensor:
        """``[batch, height, width, c, channels]`` as the convolution takes them."""
        return given

    def restore_signals(self, inputs: Tensor) -> Tensor:
        """Back from `inputs`, for signals ``[batch, height, width, c channels]``."""
        return inputs.contiguous().view(*inputs.shape[:3], -1, self._shape.inputs)

    def kernel(self, weight: Tensor) -> Tensor:
        """``[c o, i, k, k]`` of weights ``[c, o, i k k]``."""
        shape = self._shape
        kernel = weight.reshape(-1, shape.inputs, shape.kernel, shape.kernel)
        return kernel.contiguous(memory_format=torch.channels_last)

    def weights(self, kernel: Tensor, clients: int) -> Tensor:
        """Back from `kernel`, for gradients ``[c o, k, k, i]``."""
        return kernel.permute(0, 3, 1, 2).reshape(clients, self._shape.outputs, -1)

    def windows(self, made: Tensor) -> Tensor:
        """``[batch, height, width, c, 2, 2, channels]``: the pixels of each window, as a view; without pooling ``made``."""
        if self._shape.pool is None:
            return made
        (height, width), (batch, _, _, clients, channels) = self._shape.made, made.shape
        cut = made[:, : 2 * height, : 2 * width]
        return cut.view(batch, height, 2, width, 2, clients, channels).permute(0, 1, 3, 5, 2, 4, 6)

    def empty_like(self, made: Tensor) -> Tensor:
        """Room for what `windows` fills; 0 where pooling leaves out a last row or column."""
        _, height, width, _, _ = made.shape
        return torch.zeros_like(made) if height % 2 or width % 2 else torch.empty_like(made)

    def pad_bias(self, bias: Tensor) -> Tensor:
        """Biases ``[c, o]`` of all channels."""
        return bias


class Blocks:
    """Convolution and pooling as one convolution of blocks, on the device ``where``; attributes as in `Pixels`."""

    def __init__(self, shape: Convolution, where: torch.device) -> None:
        self._shape = shape
        self.padding, self.channels = 0, _round_up_channels(shape.outputs)
        self._channels_in = _round_up_channels(shape.inputs)
        self._side = shape.kernel // 2 + 1  # of the kernel, in blocks
        height, width = shape.made
        self.floats = 4 * self._channels_in * (height - 1 + self._side) * (width - 1 + self._side)
        self.floats += 4 * self.channels * height * width
        # Rows and columns of zeros around the inputs; a negative margin cuts off what no window reaches
        sides = zip((width, height), reversed(shape.size), strict=True)
        right, below = (2 * (made - 1 + self._side) - side - shape.padding for made, side in sides)
        self._margins = shape.padding, right, shape.padding, below
        places = self._places().to(where)
        # A place without a weight reads the first one, and the mask takes it away
        self._spread, self._held = (places - 1).clamp(min=0), places > 0
        # Each weight is in exactly four places, so the sorted places end in groups of four
        self._collect = places.argsort(stable=True)[-4 * shape.numel :].view(-1, 4).T.flatten()

    def _places(self) -> Tensor:
        """The number of the weight (from 1) in each place of the kernel; 0 for none."""
        shape, side = self._shape, self._side
        numbers = torch.arange(1, shape.numel + 1).view(shape.outputs, shape.inputs, shape.kernel, shape.kernel)
        # Columns come first, so that the maximum over columns reads two contiguous halves
        kernel = torch.zeros(2, 2, self.channels, 2 * side, 2 * side, self._channels_in, dtype=torch.int64)
        for column in (0, 1):
            for row in (0, 1):
                shifted = kernel[column, row, : shape.outputs, row : row + shape.kernel, column : column + shape.kernel]
                shifted[..., : shape.inputs] = numbers.permute(0, 2, 3, 1)
        return kernel.view(2, 2, self.channels, side, 2, side, 2, -1).transpose(4, 5).flatten()

    def inputs(self, given: Tensor) -> Tensor:
        """``[batch, rows, columns, c, 4 channels]``: blocks of ``[batch, height, width, c, channels]`` with zeros around."""
        padded = _pad_or_crop(given, (0, self._channels_in - given.shape[4], 0, 0, *self._margins))
        return torch.stack([padded[:, row::2, column::2] for row, column in _PLACES], 4).flatten(4)

    def restore_signals(self, inputs: Tensor) -> Tensor:
        """Back from `inputs`, for signals ``[batch, height, width, c channels]``."""
        batch, height, width, depth = inputs.shape
        padded = inputs.new_empty(batch, 2 * height, 2 * width, depth // (4 * self._channels_in), self._channels_in)
        blocks = inputs.view(batch, height, width, -1, 4, self._channels_in).unbind(4)
        for (row, column), pixels in zip(_PLACES, blocks, strict=True):
            padded[:, row::2, column::2] = pixels
        return _pad_or_crop(padded, (0, 0, 0, 0, *(-margin for margin in self._margins)))

    def kernel(self, weight: Tensor) -> Tensor:
        """``[c 4 o, 4 i, side, side]`` of weights ``[c, o, i k k]``."""
        kernel = weight.flatten(1).index_select(1, self._spread).mul_(self._held)
        return kernel.view(-1, self._side, self._side, 4 * self._channels_in).permute(0, 3, 1, 2)

    def weights(self, kernel: Tensor, clients: int) -> Tensor:
        """Back from `kernel`, for gradients, their channels last."""
        # A weight that is used in four places has the sum of their gradients
        flat = kernel.reshape(clients, -1)
        return flat.index_select(1, self._collect).view(clients, 4, self._shape.outputs, -1).sum(1)

    def windows(self, made: Tensor) -> Tensor:
        """``[batch, height, width, c, 2, 2, channels]``: the pixels of each window, as a view."""
        return made.view(*made.shape[:4], 2, 2, self.channels).transpose(4, 5)

    def empty_like(self, made: Tensor) -> Tensor:
        """Room for what `windows` fills."""
        return torch.empty_like(made)

    def pad_bias(self, bias: Tensor) -> Tensor:
        """Biases ``[c, o]`` of all channels."""
        return pad(bias, (0, self.channels - bias.shape[1]))


def _pad_or_crop(signal: Tensor, margins: tuple[int, ...]) -> Tensor:
    """Pad with zeros, or cut where a margin is negative."""
    return pad(signal, margins) if any(margins) else signal


def _round_up_channels(channels: int) -> int:
    return channels if channels <= 2 else -(-channels // 4) * 4
