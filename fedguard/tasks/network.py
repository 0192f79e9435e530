"""A network whose parameters lie in one flat vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedguard.contracts import Model
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.engines.conv_shapes import dense_widths


class Network:
    """Holds a module whose parameters are views of one flat float32 vector, so that loading is one copy.

    Attributes:
        flat: float32 ``[d]``: the parameters, in the order of ``module.parameters()``.
        widths: for a plain MLP the widths ``(inputs, hidden ..., classes)``; None for any other network.
    """

    def __init__(self, model: Model, shape: tuple[int, ...], classes: int, rng: Rng) -> None:
        with torch.random.fork_rng(devices=[]):  # torch's layers initialise themselves from the global generator
            torch.manual_seed(rng.entropy() % 2**63)
            self.module = model.build(shape, classes)
        if buffers := [name for name, _ in self.module.named_buffers()]:
            raise ConfigError(
                f"model {model} has buffers ({buffers[0]}), which are not parameters and would escape aggregation. "
                "Use GroupNorm instead of BatchNorm."
            )
        logits = tuple(self.module(torch.zeros(2, *shape)).shape)
        if logits != (2, classes):
            raise ConfigError(
                f"model {model}: expected logits of shape [2, {classes}] for two inputs; got {list(logits)}."
            )
        self.shape, self.classes = shape, classes
        self.flat = flatten(self.module)
        self.widths = _mlp_widths(self.module)

    @property
    def dim(self) -> int:
        """Number of parameters d."""
        return len(self.flat)

    @property
    def layers(self) -> tuple[int, ...]:
        """Sizes of the parameter tensors, in order."""
        return tuple(parameter.numel() for parameter in self.module.parameters())

    def __call__(self, model: Tensor, x: Tensor) -> Tensor:
        """``[B, classes]`` for inputs ``[B, *shape]`` under ``model``; gradients flow to both, and nothing is loaded."""
        return apply(self.module, model, x)

    def load(self, model: Tensor) -> None:
        """Set the parameters to ``model`` (float32 ``[d]``)."""
        self.flat.copy_(model)

    @torch.no_grad()
    def logits(self, model: Tensor, x: Tensor, batch: int = 1000) -> Tensor:
        """float32 ``[N, classes]`` for inputs ``[N, *shape]``, under ``model``."""
        self.load(model)
        return torch.cat([self.module(part) for part in torch.split(x, batch)])


def apply(module: nn.Module, model: Tensor, x: Tensor) -> Tensor:
    """``[B, classes]``: what ``module`` gives for ``x`` with the parameters ``model`` (``[d]``) in place of its own."""
    named = dict(module.named_parameters())
    parts = torch.split(model, [parameter.numel() for parameter in named.values()])
    views = {name: part.view(named[name].shape) for name, part in zip(named, parts, strict=True)}
    logits: Tensor = functional_call(module, views, (x,))
    return logits


def flatten(module: nn.Module) -> Tensor:
    """Move a module's parameters into one vector ``[d]``, and make them views of it."""
    parameters = list(module.parameters())
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    offset = 0
    for parameter in parameters:
        parameter.data = flat[offset : offset + parameter.numel()].view(parameter.shape)
        offset += parameter.numel()
    return flat


def _mlp_widths(module: nn.Module) -> tuple[int, ...] | None:
    """The widths of Flatten, Linear, ReLU, Linear ... with biases; None for anything else."""
    if not isinstance(module, nn.Sequential) or not isinstance(module[0], nn.Flatten):
        return None
    return dense_widths(list(module)[1:])
