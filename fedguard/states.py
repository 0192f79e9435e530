"""State dicts as vectors: what a training loop that is not ours keeps its models in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.errors import InputError

#: Names of a model's tensors, with the tensors; or a file of safetensors.
StateDict = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """Where the entries of a state dict lie in a vector: its floating-point entries, in its order.

    Whole numbers, such as the count of batches that a BatchNorm has seen, are no parameters: they are in no vector.

    Attributes:
        names, shapes: of the entries that lie in the vector.
        others: names of those that do not.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    others: frozenset[str]

    @classmethod
    def of(cls, state: StateDict, what: str = "the state dict") -> Layout:
        """The layout of a state dict.

        Raises:
            InputError: an entry is no real array, or none is of floating point.
        """
        tensors = {name: _tensor(value, f"{what}, {name}") for name, value in state.items()}
        floats = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        if not floats:
            raise InputError(f"{what}: expected entries of floating point; got {', '.join(tensors) or 'none at all'}.")
        return cls(tuple(floats), tuple(tensors[name].shape for name in floats), frozenset(tensors) - set(floats))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How long each entry is; they add up to d."""
        return tuple(shape.numel() for shape in self.shapes)

    def vector(self, state: StateDict, what: str = "the state dict") -> Tensor:
        """float32 ``[d]``.

        Raises:
            InputError: other entries than the layout's, or of other shapes.
        """
        if missing := sorted((set(self.names) | self.others) ^ set(state)):
            raise InputError(
                f"{what}: expected the entries {', '.join(self.names)}; it differs in {', '.join(missing)}."
            )
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            tensor = _tensor(state[name], f"{what}, {name}")
            if tensor.shape != shape or not tensor.is_floating_point():
                raise InputError(
                    f"{what}, {name}: expected floats of shape {list(shape)}; got {tensor.dtype} of {list(tensor.shape)}."
                )
            parts.append(tensor.detach().to("cpu", torch.float32).reshape(-1))
        return torch.cat(parts)

    def state(self, vector: Tensor, like: StateDict) -> dict[str, Any]:
        """The state dict of a vector ``[d]``: kinds, types and devices as ``like`` has them, and its other entries."""
        found = dict(like)
        parts = zip(self.names, self.shapes, torch.split(vector, list(self.sizes)), strict=True)
        for name, shape, part in parts:
            value, old = part.reshape(shape), like[name]
            found[name] = (
                value.to(old.device, old.dtype)
                if isinstance(old, Tensor)
                else value.numpy().astype(np.asarray(old).dtype)
            )
        return found


def read_state(value: Any, what: str = "the state dict") -> StateDict | None:
    """A state dict as it is, or from a file of safetensors; None for anything else.

    Raises:
        InputError: the file cannot be read, or safetensors is not installed.
    """
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, (str, Path)):
        return None
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise InputError(f"{what}: safetensors is not installed. pip install safetensors") from None
    try:
        return dict(load_file(value))
    except Exception as error:  # the library has an error of its own for what is no such file
        raise InputError(f"{what}: expected a file of safetensors; {value} is none: {error}.") from None


def _tensor(value: Any, what: str) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError):
        raise InputError(f"{what}: expected an array of numbers; got {type(value).__name__}.") from None
    if tensor.is_complex():
        raise InputError(f"{what}: expected real numbers; got {tensor.dtype}.")
    return tensor
