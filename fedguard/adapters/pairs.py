"""The two factors of each adapter of a network, found by the names of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from fedguard.contracts.tasks import select_trained
from fedguard.errors import ConfigError

#: What the two factors are called unless a suite says otherwise: as in LoRA's own code and in peft
NAMES = ("lora_A", "lora_B")


@dataclass(frozen=True)
class AdapterPair:
    """The adapter of one layer: it adds ``scaling * B A x`` to the layer's output.

    Attributes:
        layer: name of the layer, '' for a network that is one.
        a, b: names of the parameters A, ``[rank, inputs]``, and B, ``[outputs, rank]``.
        rank, inputs, outputs: their sizes.
        scaling: the constant in front of B A.
        base: name of the frozen weight ``[outputs, inputs]`` beside it; None if there is none.
    """

    layer: str
    a: str
    b: str
    rank: int
    inputs: int
    outputs: int
    scaling: float
    base: str | None


@dataclass(frozen=True)
class FactorPlaces:
    """Where an update has the factors of one adapter, if both are trained.

    Attributes:
        pair: the adapter.
        a, b: the coordinates of A and of B, each row by row.
    """

    pair: AdapterPair
    a: slice
    b: slice


def find_pairs(module: nn.Module, names: tuple[str, str] = NAMES) -> tuple[AdapterPair, ...]:
    """The adapters of a network, in the order of its parameters.

    A parameter is an A if a part of its dotted name is ``names[0]``; its B has ``names[1]`` there instead. What comes before
    this part is the layer. The layer's attribute ``scaling``, a number or a mapping of one for each adapter, is the constant in
    front (1 without one). Its frozen matrix ``base_layer.weight`` or ``weight`` is the base.

    Raises:
        ConfigError: a factor without the other, or factors of shapes that do not multiply.
    """
    parameters = dict(module.named_parameters())
    # Neither a second name of a shared A nor the B alone is a pair of its own
    found = [_pair(module, parameters, name, names) for name in parameters if names[0] in name.split(".")]
    left = {name for name in parameters if names[1] in name.split(".")} - {pair.b for pair in found}
    if left:
        raise ConfigError(
            f"training.adapters: parameter {min(left)} has no {names[0]} beside it. Name the factors {names[0]} and "
            f"{names[1]}, or say in training.adapters.names how they are named."
        )
    return tuple(found)


def place_pairs(module: nn.Module, pairs: tuple[AdapterPair, ...]) -> tuple[FactorPlaces, ...]:
    """Where a flat vector of trained parameters has the factors; pairs of which one factor is frozen are left out."""
    places = place_parameters(module)
    return tuple(
        FactorPlaces(pair, places[pair.a], places[pair.b]) for pair in pairs if pair.a in places and pair.b in places
    )


def place_parameters(module: nn.Module) -> dict[str, slice]:
    """Where a flat vector of trained parameters has each of them, by name."""
    places, start = {}, 0
    for name, parameter in select_trained(module).items():
        places[name] = slice(start, start + parameter.numel())
        start += parameter.numel()
    return places


def _pair(module: nn.Module, parameters: Mapping[str, nn.Parameter], name: str, names: tuple[str, str]) -> AdapterPair:
    parts = name.split(".")
    at = parts.index(names[0])
    layer, after, other = ".".join(parts[:at]), parts[at + 1 :], ".".join([*parts[:at], names[1], *parts[at + 1 :]])
    if other not in parameters:
        raise ConfigError(
            f"training.adapters: parameter {name} has no {other} beside it. Name the factors {names[0]} and {names[1]}, or say "
            "in training.adapters.names how they are named."
        )
    a, b = parameters[name], parameters[other]
    if a.dim() != 2 or b.dim() != 2 or b.shape[1] != a.shape[0]:
        raise ConfigError(
            f"training.adapters: {name} and {other}: expected A [rank, inputs] and B [outputs, rank]; got {list(a.shape)} and "
            f"{list(b.shape)}. Leave adapters of other layers out of the network."
        )
    rank, inputs, outputs = a.shape[0], a.shape[1], b.shape[0]
    if rank > min(inputs, outputs):
        raise ConfigError(
            f"training.adapters: {name}: expected a rank of at most {min(inputs, outputs)}; got {rank}. Lower the rank."
        )
    wanted = [f"{layer}.{one}".removeprefix(".") for one in ("base_layer.weight", "weight")]
    bases = [one for one in wanted if one in parameters and parameters[one].shape == (outputs, inputs)]
    frozen = [one for one in bases if not parameters[one].requires_grad]
    scaling = _scaling(module.get_submodule(layer), after)
    return AdapterPair(layer, name, other, rank, inputs, outputs, scaling, frozen[0] if frozen else None)


def _scaling(layer: nn.Module, after: list[str]) -> float:
    """The constant before B A: peft keeps one for each adapter by its name, which follows the factor's."""
    scaling = getattr(layer, "scaling", 1.0)
    if isinstance(scaling, Mapping):
        scaling = scaling.get(after[0] if after else "default", 1.0)
    return float(scaling)
