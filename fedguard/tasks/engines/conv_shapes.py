"""The shapes that the convolutional engine needs, read off a network's layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from fedguard.contracts.tasks import select_trained

Pool = Literal["max", "average"]


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution with ReLU, and with pooling over 2 x 2 or none.

    Args:
        inputs: channels in.
        outputs: channels out.
        kernel: side of the kernel, in pixels.
        padding: zeros on each side, in pixels.
        size: height and width of the inputs.
        pool: average pooling comes after the ReLU; for the maximum the order makes no difference.
    """

    inputs: int
    outputs: int
    kernel: int
    padding: int
    size: tuple[int, int]
    pool: Pool | None

    @property
    def made(self) -> tuple[int, int]:
        """Height and width of the outputs."""
        height, width = (side + 2 * self.padding - self.kernel + 1 for side in self.size)
        return (height, width) if self.pool is None else (height // 2, width // 2)

    @property
    def numel(self) -> int:
        """Number of weights."""
        return self.outputs * self.inputs * self.kernel**2


@dataclass(frozen=True)
class ConvShapes:
    """Convolutions, and the widths ``(inputs, hidden ..., classes)`` of the dense layers with ReLU that follow."""

    convolutions: tuple[Convolution, ...]
    widths: tuple[int, ...]

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of the input of the dense layers."""
        last = self.convolutions[-1]
        return last.outputs, *last.made

    @property
    def narrow(self) -> bool:
        """Whether all convolutions are pooled and have few channels: then computing in blocks saves more than it costs."""
        return all(layer.pool and layer.outputs < 32 for layer in self.convolutions)


def conv_shapes(module: nn.Module, shape: tuple[int, ...]) -> ConvShapes | None:
    """The shapes of Conv2d, ReLU, pooling ... Flatten, Linear, ReLU ... Linear; None for any other network."""
    layers = plain_layers(module)
    if not layers or len(shape) != 3:
        return None
    # 0 without Flatten, too; a network that begins with it is an MLP, for the dense engine
    flatten = next((place for place, layer in enumerate(layers) if type(layer) is nn.Flatten), 0)
    if flatten == 0 or layers[flatten].extra_repr() != nn.Flatten().extra_repr():
        return None
    size, convolutions = shape[1:], list[Convolution]()
    place = 0
    while place < flatten:
        layer, *after = layers[place:flatten]
        kinds = [_kind(follower) for follower in after[:2]]
        # ReLU and the maximum commute, ReLU and the average do not: only the maximum may come before the ReLU
        if not _plain(layer) or "relu" not in kinds[: 2 if "max" in kinds[:1] else 1]:
            return None
        pools: list[Pool] = [kind for kind in kinds if kind in ("max", "average")]
        assert isinstance(layer, nn.Conv2d) and isinstance(layer.padding, tuple)
        convolution = Convolution(
            inputs=layer.in_channels,
            outputs=layer.out_channels,
            kernel=layer.kernel_size[0],
            padding=layer.padding[0],
            size=(size[0], size[1]),
            pool=pools[0] if pools else None,
        )
        convolutions.append(convolution)
        size = convolution.made
        place += 2 + len(pools)
    dense = dense_widths(layers[flatten + 1 :])
    return ConvShapes(tuple(convolutions), dense) if convolutions and dense else None


def plain_layers(module: nn.Module) -> list[nn.Module]:
    """The layers of a network that only runs them one after the other; an empty list for any other network."""
    if type(module) is not nn.Sequential:  # a class of the user's own may run them in another way
        return []
    layers = list(module)
    if len(select_trained(module)) != sum(len(list(layer.parameters())) for layer in layers):
        return []  # layers share some, or some are frozen
    return [] if any(_is_altered(layer) for layer in (module, *layers)) else layers


def _is_altered(layer: nn.Module) -> bool:
    """Whether a layer does more than its class: by hooks, or by a ``forward`` of its own."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(hooks) or "forward" in vars(layer)


def dense_widths(layers: list[nn.Module]) -> tuple[int, ...] | None:
    """The widths of Linear, ReLU, Linear ... with biases; None for anything else."""
    dense, between = layers[::2], layers[1::2]
    if len(dense) != len(between) + 1 or not all(type(layer) is nn.ReLU for layer in between):
        return None
    widths: list[int] = []
    for layer in dense:
        if type(layer) is not nn.Linear or layer.bias is None:
            return None
        widths = [*(widths or [layer.in_features]), layer.out_features]
    return tuple(widths)


def _plain(layer: nn.Module) -> bool:
    """Whether it is a convolution with a square kernel and a bias, without stride, dilation or groups."""
    return (
        type(layer) is nn.Conv2d
        and len(set(layer.kernel_size)) == 1
        and isinstance(layer.padding, tuple)
        and len(set(layer.padding)) == 1
        and {*layer.stride, *layer.dilation, layer.groups} == {1}
        and layer.padding_mode == "zeros"
        and layer.bias is not None
    )


def _kind(layer: nn.Module) -> Literal["relu", "max", "average"] | None:
    """The kind of a layer that follows a convolution; None if it is unknown."""
    if type(layer) is nn.ReLU:
        return "relu"
    if type(layer) is nn.MaxPool2d and not layer.return_indices and _single(layer.dilation) == 1:
        kind: Pool = "max"
    elif type(layer) is nn.AvgPool2d and layer.divisor_override is None:
        kind = "average"
    else:
        return None
    window = tuple(_single(value) for value in (layer.kernel_size, layer.stride, layer.padding))
    return kind if window == (2, 2, 0) and not layer.ceil_mode else None


def _single(value: int | tuple[int, ...]) -> int | None:
    """The number for both axes, in either notation; None if they differ."""
    both = {value} if isinstance(value, int) else set(value)
    return both.pop() if len(both) == 1 else None
