"""A network with its parameters in one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedguard.contracts import Model
from fedguard.errors import ConfigError
from fedguard.rng import Rng, global_generators
from fedguard.tasks.compute import Compute, computing_in
from fedguard.tasks.engines.conv_shapes import dense_widths, plain_layers


class FlatNetwork:
    """Holds a module whose parameters are views of one flat vector, so that loading is one copy.

    They are drawn in float32 whatever is computed in, so that a training in float64 starts from the same model.

    Attributes:
        compute: device and memory; by default the processor, with the usual memory.
        flat: float32 or float64 ``[d]``: the parameters, in the order of ``module.parameters()``.
        widths: for a plain MLP with cross-entropy the widths ``(inputs, hidden ..., classes)``; None for any other network.
        value_range, characters: properties of the inputs, as in `Dataset`.
    """

    value_range: tuple[float, float] = (-3.0, 3.0)
    characters: bool = False

    def __init__(
        self, model: Model, shape: tuple[int, ...], classes: int, rng: Rng, compute: Compute | None = None
    ) -> None:
        self.compute, self.name, dtype = compute or Compute(), str(model), torch.get_default_dtype()
        with global_generators(rng), computing_in("float32"):  # torch's layers initialise themselves from torch's
            self.module = model.build(shape, classes)
            if dtype != torch.float32:
                self.module.to(dtype)
        if buffers := [name for name, _ in self.module.named_buffers()]:
            raise ConfigError(
                f"model {model} has buffers ({buffers[0]}), which are not parameters and would escape aggregation. "
                "Use GroupNorm instead of BatchNorm."
            )
        logits = tuple(self.module(torch.zeros(2, *shape)).shape)
        if logits != (2, classes):
            one = " Of two classes, too, each has a logit of its own: give it two outputs." if logits == (2, 1) else ""
            raise ConfigError(
                f"model {model}: expected logits of shape [2, {classes}] for two inputs; got {list(logits)}.{one}"
            )
        self.shape, self.classes = shape, classes
        #: (logits, labels, "mean" or "sum") -> the loss that training minimizes.
        self.loss = model.loss
        self.flat = flatten(self.module)
        self._copies: dict[torch.device, tuple[nn.Module, Tensor]] = {}
        self.by_cross_entropy = model.by_cross_entropy
        self.widths = _mlp_widths(self.module) if self.by_cross_entropy else None
        #: Sizes of the parameter tensors, in order.
        self.layers = tuple(parameter.numel() for parameter in self.module.parameters())

    @property
    def dim(self) -> int:
        """Number of parameters d."""
        return len(self.flat)

    def on(self, where: torch.device) -> tuple[nn.Module, Tensor]:
        """The module and its flat vector on a device: the module itself in main memory, a cached copy on other devices."""
        if where.type == "cpu":
            return self.module, self.flat
        if where not in self._copies:
            self._copies[where] = duplicate(self.module, where)
        return self._copies[where]

    def __call__(self, model: Tensor, x: Tensor) -> Tensor:
        """``[B, classes]`` for inputs ``[B, *shape]`` under ``model``; gradients flow to both, and nothing is loaded."""
        where = self.compute.device
        return apply(self.on(where)[0], model.to(where), x.to(where)).cpu()

    @torch.no_grad()
    def logits(self, model: Tensor, x: Tensor, batch: int = 1000) -> Tensor:
        """``[N, classes]`` for inputs ``[N, *shape]``, under ``model``."""
        module, flat = self.on(self.compute.device)
        flat.copy_(model)
        return torch.cat([module(part.to(flat.device)) for part in torch.split(x, batch)]).cpu()


def apply(module: nn.Module, model: Tensor, x: Tensor) -> Tensor:
    """``[B, classes]``: the output of ``module`` for ``x`` with the parameters ``model`` (``[d]``) in place of its own."""
    logits: Tensor = apply_module(module, model, x)
    return logits


#: The places of a parameter in a module: the dictionaries that hold it, and its name in each.
Places = list[tuple[dict[str, Any], str]]
#: Shape and places of each module's parameters, cached because finding them takes longer than running a small network.
_PARAMETERS: WeakKeyDictionary[nn.Module, list[tuple[torch.Size, Places]]] = WeakKeyDictionary()


def apply_module(module: nn.Module, model: Tensor, *inputs: Any) -> Any:
    """The output of ``module`` for some inputs with the parameters ``model`` (``[d]``) in place of its own."""
    with holding(module, model):
        return module(*inputs)


@contextmanager
def holding(module: nn.Module, model: Tensor) -> Iterator[None]:
    """Within the context ``module`` has the parameters ``model`` (``[d]``) in place of its own; gradients flow to them.

    `torch.func.functional_call` does the same, but searches for the parameters each time.
    """
    if module not in _PARAMETERS:
        _PARAMETERS[module] = _find_parameters(module)
    parameters = _PARAMETERS[module]
    parts = torch.split(model, [shape.numel() for shape, _ in parameters])
    own = [places[0][0][places[0][1]] for _, places in parameters]
    try:
        for (shape, places), part in zip(parameters, parts, strict=True):
            _put(part.view(shape), places)
        yield
    finally:
        for (_, places), parameter in zip(parameters, own, strict=True):
            _put(parameter, places)


def _put(parameter: Tensor, places: Places) -> None:
    for held, name in places:
        held[name] = parameter


def _find_parameters(module: nn.Module) -> list[tuple[torch.Size, Places]]:
    """Shape and places of each parameter, in the order of ``module.parameters()``; a shared one has several places."""
    places: dict[nn.Parameter, Places] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(parameter, []).append((part._parameters, name))
    return [(parameter.shape, places[parameter]) for parameter in module.parameters()]


def bare(module: nn.Module) -> nn.Module:
    """A copy of a module with parameters of 0 and no gradients, which reveals nothing of a training but the shapes."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.grad = None
            parameter.zero_()
    return copied


class Predictor:
    """``(model [d], inputs [B, *shape]) -> logits [B, classes]``, for callers who may not see more than that.

    Gradients flow to both. The object has no reference to data, nor to parameters that were loaded for a training.
    """

    def __init__(self, network: FlatNetwork) -> None:
        self._device = network.compute.device
        self._module = bare(network.module).to(self._device)

    def __call__(self, model: Tensor, x: Tensor) -> Tensor:
        return apply(self._module, model.to(self._device), x.to(self._device)).cpu()


def duplicate(module: nn.Module, where: torch.device) -> tuple[nn.Module, Tensor]:
    """A copy of a module with parameters that are views of one vector ``[d]`` on a device, and this vector."""
    parameters = list(module.parameters())
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).to(where)
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    copies = {
        id(parameter): nn.Parameter(part.view(parameter.shape), parameter.requires_grad)
        for parameter, part in zip(parameters, parts, strict=True)
    }
    return copy.deepcopy(module, copies), flat


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
    layers = plain_layers(module)
    if not layers or type(layers[0]) is not nn.Flatten or layers[0].extra_repr() != nn.Flatten().extra_repr():
        return None
    return dense_widths(layers[1:])
