"""A network with its parameters in one flat vector."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedguard.contracts import Model, StatisticsLayout
from fedguard.contracts.statistics import Normalization
from fedguard.contracts.tasks import Tokens, select_trained
from fedguard.errors import ConfigError
from fedguard.rng import Rng, global_generators
from fedguard.tasks.compute import Compute, computing_in
from fedguard.tasks.engines.conv_shapes import dense_widths, plain_layers
from fedguard.tasks.statistics import NetworkStatistics, prepare_statistics, refusing_changes

#: Inputs of which logits are computed at a time
BATCH = 1000


class FlatNetwork:
    """Holds a module whose trained parameters are views of one flat vector, so that loading is one copy.

    They are drawn in float32 whatever is computed in, so that a training in float64 starts from the same model.

    Attributes:
        compute: device and memory; by default the processor, with the usual memory.
        flat: float32 or float64 ``[d]``: the trained parameters, in the order of ``module.parameters()``.
        widths: for a plain MLP with cross-entropy the widths ``(inputs, hidden ..., classes)``; None for any other network.
        statistics: the layout of its running statistics; empty for a network without them.
        normalization: by what layers normalize that normalize over batches.
        answers: the shape of what it answers for one input: empty for one row of logits, ``(length,)`` for one of each token.
        couples: whether the output of an example depends on the rest of its batch, so that a batch needs two examples.
        value_range, tokens: properties of the inputs, as in `Dataset`.
    """

    value_range: tuple[float, float] = (-3.0, 3.0)

    def __init__(
        self,
        model: Model,
        shape: tuple[int, ...],
        classes: int,
        rng: Rng,
        compute: Compute | None = None,
        normalization: Normalization = "running",
        tokens: Tokens | None = None,
    ) -> None:
        self.compute, self.name, dtype = compute or Compute(), str(model), torch.get_default_dtype()
        self.normalization: Normalization = normalization
        with global_generators(rng), computing_in("float32"):  # torch's layers initialise themselves from torch's
            self.module = model.build(shape, classes)
            if dtype != torch.float32:
                self.module.to(dtype)
        self.tokens = tokens
        if tokens is not None and any(isinstance(part, nn.Embedding) for part in self.module.modules()):
            self.module.register_forward_pre_hook(_read_tokens)
        normalizing = prepare_statistics(self.module, normalization, self.name)
        with refusing_changes(self.module, self.name):
            logits = tuple(self.module(torch.zeros(2, *shape)).shape)
        self.answers = logits[1:-1] if tokens is not None and logits[1:-1] == shape else ()
        if logits != (2, *self.answers, classes):
            one = " Of two classes, too, each has a logit of its own: give it two outputs." if logits == (2, 1) else ""
            raise ConfigError(
                f"model {model}: expected logits of shape [2, {classes}] for two inputs; got {list(logits)}.{one}"
            )
        self.shape, self.classes = shape, classes
        if not select_trained(self.module):
            raise ConfigError(
                f"model {model}: expected parameters that are trained; got none that requires a gradient. Leave at least one "
                "layer, such as the last, with requires_grad=True."
            )
        #: (logits, labels, "mean" or "sum") -> the loss that training minimizes.
        self.loss = model.loss
        self.flat = flatten(self.module)
        self._own = NetworkStatistics(self.module)
        self._copies: dict[torch.device, tuple[nn.Module, Tensor, NetworkStatistics]] = {}
        self.statistics: StatisticsLayout = self._own.layout(normalizing)
        self.couples = normalizing > 0 and normalization != "constant"
        self.by_cross_entropy = model.by_cross_entropy
        self.widths = _mlp_widths(self.module) if self.by_cross_entropy else None
        #: Sizes of the trained parameter tensors, in order.
        self.layers = tuple(parameter.numel() for parameter in select_trained(self.module).values())

    @property
    def dim(self) -> int:
        """Number of trained parameters d."""
        return len(self.flat)

    def digest_frozen(self) -> str | None:
        """A digest of names and values of the frozen parameters, 16 hexadecimal digits; None for a network without any."""
        frozen = [(name, one) for name, one in self.module.named_parameters() if not one.requires_grad]
        digest = hashlib.sha256()
        for name, parameter in frozen:
            digest.update(f"{name} {parameter.dtype} {list(parameter.shape)}".encode())
            digest.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16] if frozen else None

    def on(self, where: torch.device) -> tuple[nn.Module, Tensor, NetworkStatistics]:
        """The module, its flat vector and its statistics on a device: its own in main memory, a cached copy elsewhere."""
        if where.type == "cpu":
            return self.module, self.flat, self._own
        if where not in self._copies:
            module, flat = duplicate(self.module, where)
            self._copies[where] = module, flat, NetworkStatistics(module)
        return self._copies[where]

    def __call__(self, model: Tensor, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        """``[B, classes]`` for inputs ``[B, *shape]`` under ``model``; gradients flow to both, and no parameter is loaded."""
        where = self.compute.device
        module, _, own = self.on(where)
        with own.evaluating(statistics):
            return apply(module, model.to(where), x.to(where)).cpu()

    @torch.no_grad()
    def logits(self, model: Tensor, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        """``[N, classes]`` for inputs ``[N, *shape]``, under ``model``, in batches of `BATCH` in the order of the inputs."""
        module, flat, own = self.on(self.compute.device)
        flat.copy_(model)
        with own.evaluating(statistics):
            return torch.cat([module(part.to(flat.device)) for part in self._split(x)]).cpu()

    @torch.no_grad()
    def measure_statistics(self, model: Tensor, x: Tensor, out: Tensor) -> None:
        """Write the statistics of inputs ``[N, *shape]`` under ``model``, by one pass over them, into ``out``, ``[s]``."""
        module, flat, own = self.on(self.compute.device)
        flat.copy_(model)
        own.measure(module, [part.to(flat.device) for part in self._split(x)], out)

    def _split(self, x: Tensor) -> list[Tensor]:
        """Batches of inputs; if examples see each other, a last batch of one joins the one before it."""
        parts = list(torch.split(x, BATCH))
        if self.couples and len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts


def _read_tokens(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Numbers of tokens, which are held in a floating type, as the int64 that embeddings and masks expect."""
    return tuple(one.long() for one in given)


def apply(module: nn.Module, model: Tensor, x: Tensor) -> Tensor:
    """``[B, classes]``: the output of ``module`` for ``x`` with the parameters ``model`` (``[d]``) in place of its own."""
    logits: Tensor = apply_module(module, model, x)
    return logits


#: The places of a parameter in a module: the dictionaries that hold it, and its name in each.
Places = list[tuple[dict[str, Any], str]]
#: Shape and places of each module's trained parameters, cached because finding them takes longer than running a small network.
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
    """Shape and places of each trained parameter, in the order of ``module.parameters()``; a shared one has several places."""
    places: dict[nn.Parameter, Places] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(parameter, []).append((part._parameters, name))
    return [(parameter.shape, places[parameter]) for parameter in select_trained(module).values()]


def bare(module: nn.Module) -> nn.Module:
    """A copy of a module with parameters of 0 and no gradients, which reveals nothing of a training but the shapes.

    Frozen parameters keep their values, which no training has moved. Its running statistics are 0 as well: whoever
    gets it sets them, or normalizes by the batch.
    """
    copied = copy.deepcopy(module, _share_frozen(module))
    with torch.no_grad():
        for parameter in select_trained(copied).values():
            parameter.grad = None
            parameter.zero_()
    NetworkStatistics(copied).flat.zero_()
    return copied


class Predictor:
    """``(model [d], inputs [B, *shape]) -> logits [B, classes]``, for callers who may not see more than that.

    Gradients flow to both. The object has no reference to data, nor to parameters that were loaded for a training.

    Args:
        statistics: float32 ``[s]``: running statistics by which it normalizes; by default by each batch of inputs.
    """

    def __init__(self, network: FlatNetwork, statistics: Tensor | None = None) -> None:
        self._device, self._statistics = network.compute.device, statistics
        self._module = bare(network.module).to(self._device)
        self._own = NetworkStatistics(self._module)

    def __call__(self, model: Tensor, x: Tensor) -> Tensor:
        with self._own.evaluating(self._statistics):
            return apply(self._module, model.to(self._device), x.to(self._device)).cpu()


def duplicate(module: nn.Module, where: torch.device) -> tuple[nn.Module, Tensor]:
    """A copy of a module with trained parameters that are views of one vector ``[d]`` on a device, and this vector.

    In main memory it shares the frozen parameters with the module.
    """
    parameters = list(select_trained(module).values())
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).to(where)
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    copies = {
        id(parameter): nn.Parameter(part.view(parameter.shape))
        for parameter, part in zip(parameters, parts, strict=True)
    }
    buffers = {id(buffer): buffer.to(where, copy=True) for buffer in module.buffers()}
    return copy.deepcopy(module, copies | _share_frozen(module, where) | buffers), flat


def _share_frozen(module: nn.Module, where: torch.device | None = None) -> dict[int, Any]:
    """The frozen parameters by their identity, for `copy.deepcopy` to leave them as they are, or on a device."""
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    return {id(one): one if where in (None, one.device) else nn.Parameter(one.to(where), False) for one in frozen}


def flatten(module: nn.Module) -> Tensor:
    """Move a module's trained parameters into one vector ``[d]``, and make them views of it."""
    parameters = list(select_trained(module).values())
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
