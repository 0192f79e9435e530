"""The running statistics of a network: found by the type of its layers, and held in one flat vector.

What counts as what: a buffer of a layer of torch that normalizes over batches (`torch.nn.modules.batchnorm._NormBase`) is a
*statistic* if it is its running mean or variance, and a *counter* if it counts batches; in a layer in evaluation mode
(``Module.eval``) all are constants. A counter stays where it is: it is
never sent, and nothing reads it. Any other buffer that training does not change is a *constant*. One that training changes is
refused: nobody knows what its mean over clients is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fedguard.contracts.statistics import LocalStatistics, Normalization, StatisticsLayout
from fedguard.errors import ConfigError


class NetworkStatistics:
    """The running statistics of one module, as views of one vector; with none of them, nothing here does anything.

    Attributes:
        flat: float32 ``[s]``: the statistics, in the order of `StatisticsLayout`.
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers = _normalizing_layers(module)
        buffers = [buffer for layer in self._layers for buffer in (layer.running_mean, layer.running_var)]
        self.flat = torch.cat([buffer for buffer in buffers if buffer is not None]) if buffers else torch.empty(0)
        parts = torch.split(self.flat, [buffer.numel() for buffer in buffers if buffer is not None])
        for layer, mean, variance in zip(self._layers, parts[::2], parts[1::2], strict=True):
            layer.running_mean = mean
            layer.running_var = variance
        self._initial = self.flat.clone()

    def layout(self, layers: int) -> StatisticsLayout:
        """The layout, with the number of layers that normalize over batches."""
        return StatisticsLayout(tuple(layer.num_features for layer in self._layers), self._initial.cpu(), layers)

    def begin(self, statistics: LocalStatistics | None, row: int) -> None:
        """Before a client trains: its statistics are set, by default to the initial ones."""
        start = self._initial if statistics is None else statistics.start
        self.flat.copy_(start if start.dim() == 1 else start[row])

    def end(self, statistics: LocalStatistics | None, row: int) -> None:
        """After it has trained: its statistics are read."""
        if statistics is not None:
            statistics.out[row].copy_(self.flat)

    @contextmanager
    def evaluating(self, statistics: Tensor | None) -> Iterator[None]:
        """Within the context layers normalize by these statistics (``[s]``), or, for None, each input by its batch's own."""
        if statistics is not None:
            self.flat.copy_(statistics)
        for layer in self._layers:
            # Without tracking, training mode reads the batch and writes nothing
            layer.training, layer.track_running_stats = statistics is None, statistics is not None
        try:
            yield
        finally:
            for layer in self._layers:
                layer.training, layer.track_running_stats = True, True

    @torch.no_grad()
    def measure(self, module: nn.Module, batches: list[Tensor], out: Tensor) -> None:
        """Write the statistics of some batches, which ``module`` passes over once, into ``out``, float32 ``[s]``.

        They are the mean over the batches, weighted by their sizes, of each batch's mean and variance.
        """
        momentum, seen = [layer.momentum for layer in self._layers], 0
        try:
            for batch in batches:
                seen += len(batch)
                for layer in self._layers:
                    layer.momentum = len(batch) / seen  # 1 for the first, so that what was there before is forgotten
                module(batch)
        finally:
            for layer, usual in zip(self._layers, momentum, strict=True):
                layer.momentum = usual
        out.copy_(self.flat)


def prepare_statistics(module: nn.Module, normalization: Normalization, name: str) -> int:
    """Make a network normalize in this way. Returns the number of its layers that normalize over batches.

    Raises:
        ConfigError: a layer of it cannot.
    """
    if not module.training:
        # A whole network in evaluation mode comes from a file; a single layer is in it on purpose
        for part in module.modules():
            part.training = part.training or isinstance(part, _NormBase)
    layers = _normalizing_layers(module)
    for layer in layers:
        if layer.momentum is None:
            raise ConfigError(
                f"model {name}: {type(layer).__name__} with momentum=None averages over all batches that it has seen, by a "
                "counter that clients do not send. Give it a momentum, such as 0.1."
            )
        if normalization == "batch":
            layer.track_running_stats = False
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
    if normalization == "constant":
        constant: Mapping[nn.Module, nn.Module] = {layer: ConstantNorm(layer) for layer in layers}
        for parent in list(module.modules()):
            for place, child in parent._modules.items():
                if child is not None and child in constant:
                    parent._modules[place] = constant[child]
    return len(layers)


def normalize_by_batch(module: nn.Module) -> nn.Module:
    """The module, with layers that normalize by the batch and write no running statistics, which they keep as they are."""
    for layer in _normalizing_layers(module):
        layer.track_running_stats = False  # in training mode: read the batch, write nothing
    return module


def momenta(module: nn.Module) -> Tensor:
    """float32 ``[s]``: the share of each batch in the running statistics, coordinate by coordinate."""
    shares = [torch.full((2 * layer.num_features,), layer.momentum or 0.0) for layer in _normalizing_layers(module)]
    return torch.cat(shares) if shares else torch.empty(0)


@contextmanager
def refusing_changes(module: nn.Module, name: str) -> Iterator[None]:
    """Within the context, a training forward pass, no buffer may change that is no running statistic; these are reset.

    Raises:
        ConfigError: another buffer has changed, or a frozen parameter.
    """
    frozen = {where: one for where, one in module.named_parameters() if not one.requires_grad}
    if broken := [where for where, one in frozen.items() if not bool(one.isfinite().all())]:
        raise ConfigError(
            f"model {name}: {broken[0]} is frozen (requires_grad=False), and holds NaN or infinity. Load "
            "weights that are finite, or train it."
        )
    kept = {where: one.detach().clone() for where, one in frozen.items()}
    before = {where: buffer.clone() for where, buffer in module.named_buffers()}
    yield
    if moved := [where for where, one in frozen.items() if not torch.equal(one, kept[where])]:
        raise ConfigError(
            f"model {name}: {moved[0]} is frozen (requires_grad=False), and forward changes it all the same, so that no update "
            "carries the change. Train it, or leave it as it is."
        )
    normalizing = {id(layer) for layer in _normalizing_layers(module)}
    for prefix, part in module.named_modules():
        for place, buffer in part.named_buffers(recurse=False):
            where = f"{prefix}.{place}" if prefix else place
            if torch.equal(buffer, before[where]):
                continue
            if id(part) not in normalizing:
                raise ConfigError(
                    f"model {name}: training changes the buffer {where} of {type(part).__name__}, which is no parameter and no "
                    "running statistic of a normalizing layer of torch, so that no update carries it. Leave it out, or make it "
                    "a parameter."
                )
            buffer.copy_(before[where])


def join_single(batches: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """A schedule in which a batch of one example has joined the batch before it, since one example has no variance.

    Args:
        batches: int64 ``[steps, batch]``, -1 where a batch is smaller.

    Raises:
        ConfigError: the first batch has one example.
    """
    sizes = (batches >= 0).sum(1)
    if not (sizes == 1).any():
        return batches
    if sizes[0] == 1 or ((sizes[1:] == 1) & (sizes[:-1] == 1)).any():
        raise ConfigError(
            f"model {name} normalizes over batches, and one example has no variance: expected at least 2 examples of each "
            "client and in each batch. Raise training.batch_size, or lower clients.total."
        )
    joined = np.full((len(batches), batches.shape[1] + 1), -1)
    joined[:, :-1] = batches
    for single in np.flatnonzero(sizes == 1):
        joined[single - 1, sizes[single - 1]] = batches[single, 0]
    kept: NDArray[np.int64] = joined[sizes != 1]
    return kept


class ConstantNorm(nn.Sequential):
    """A normalizing layer with constant statistics: $y = w (x - m) / sqrt(v + eps) + b$ by channel, each example by itself.

    Constants and parameters are two modules, since Opacus refuses a module with parameters and buffers.
    """

    def __init__(self, layer: _NormBase) -> None:
        super().__init__(_Standardize(layer), *([_Scale(layer)] if layer.affine else []))


class _Standardize(nn.Module):
    """$(x - m) / sqrt(v + eps)$."""

    def __init__(self, layer: _NormBase) -> None:
        super().__init__()
        assert layer.running_mean is not None and layer.running_var is not None
        self.register_buffer("mean", layer.running_mean.clone())
        self.register_buffer("scale", (layer.running_var + layer.eps).rsqrt())

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels, ...]`` to the same shape."""
        return (x - _by_channel(self.get_buffer("mean"), x)) * _by_channel(self.get_buffer("scale"), x)


class _Scale(nn.Module):
    """$w x + b$."""

    def __init__(self, layer: _NormBase) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels, ...]`` to the same shape."""
        return x * _by_channel(self.weight, x) + _by_channel(self.bias, x)


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    """``[channels]`` in the form in which they meet ``x``, ``[B, channels, ...]``."""
    return values.view(1, -1, *(1 for _ in x.shape[2:]))


def _normalizing_layers(module: nn.Module) -> list[_NormBase]:
    """The layers with running statistics: by their type, since a name says nothing.

    A layer in evaluation mode normalizes by constants, which no training changes, and stays as it is.
    """
    normalizing = (part for part in module.modules() if isinstance(part, _NormBase) and part.running_mean is not None)
    return [part for part in normalizing if part.training]
