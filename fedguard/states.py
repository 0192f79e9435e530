"""State dicts as vectors: the form in which foreign training loops keep their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.errors import InputError
from fedguard.reading import read_array

#: Names of a model's tensors, with the tensors; or a safetensors file
StateDict = Mapping[str, Any]
#: How the names of running statistics end
MEAN, VARIANCE = "running_mean", "running_var"


@dataclass(frozen=True)
class Layout:
    """The positions of a state dict's entries in a vector: its floating-point entries, in its order.

    Integers, such as the batch counter of a BatchNorm, are not parameters and are in no vector.

    Attributes:
        names, shapes: of the entries in the vector.
        others: names of the other entries.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    others: frozenset[str]

    @classmethod
    def of(cls, state: StateDict, what: str = "the state dict") -> Layout:
        """The layout of a state dict.

        Raises:
            InputError: an entry is not an array of real numbers, or none is of floating point.
        """
        return cls.of_several([state], [what])

    @classmethod
    def of_several(cls, states: Sequence[StateDict], what: Sequence[str]) -> Layout:
        """The layout of one model held by several parties: entries of floating point in most of them are in the vector.

        Averaging states makes fractions of counters, which look like parameters in an averaged model.

        Raises:
            InputError: an entry is not an array of real numbers, or none is of floating point.
        """
        read = [
            {name: read_array(value, f"{owner}, {name}") for name, value in state.items()}
            for state, owner in zip(states, what, strict=True)
        ]
        first = read[0]
        of_floats = {
            name: sum(name in tensors and tensors[name].is_floating_point() for tensors in read) for name in first
        }
        floats = [name for name in first if 2 * of_floats[name] > len(read)]
        if not floats:
            differ = [(owner, set(first) ^ set(state)) for state, owner in zip(states, what, strict=True)]
            for owner, names in differ:
                if names:
                    raise InputError(
                        f"{owner}: expected the entries of {what[0]}; it differs in {', '.join(sorted(names))}."
                    )
            raise InputError(f"{what[0]}: expected entries of floating point; got {', '.join(first) or 'none at all'}.")
        return cls(tuple(floats), tuple(first[name].shape for name in floats), frozenset(first) - set(floats))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Length of each entry; they add up to d."""
        return tuple(shape.numel() for shape in self.shapes)

    def split(self) -> tuple[Layout, Layout | None]:
        """The layouts of the parameters and of the running statistics; None without any.

        A normalizing layer of torch is recognized by what its state dict is called: ``NAME.running_mean`` and
        ``NAME.running_var``, in this order and of one length. Each layout has the other's entries among its others.
        """
        own = {
            name
            for (mean, of_mean), (variance, of_variance) in pairwise(zip(self.names, self.shapes, strict=True))
            if mean.endswith(MEAN) and variance == mean.removesuffix(MEAN) + VARIANCE and of_mean == of_variance
            for name in (mean, variance)
        }
        if not own or len(own) == len(self.names):
            return self, None
        parameters, statistics = (
            Layout(
                tuple(name for name in self.names if (name in own) == theirs),
                tuple(shape for name, shape in zip(self.names, self.shapes, strict=True) if (name in own) == theirs),
                self.others | {name for name in self.names if (name in own) != theirs},
            )
            for theirs in (False, True)
        )
        return parameters, statistics

    def vector(self, state: StateDict, what: str = "the state dict", *, averaged: bool = False) -> Tensor:
        """float32 ``[d]``.

        Args:
            averaged: whether the sender does not keep types, so that parameters may come as integers.

        Raises:
            InputError: other entries than the layout's, or of other shapes.
        """
        if missing := sorted((set(self.names) | self.others) ^ set(state)):
            raise InputError(
                f"{what}: expected the entries {', '.join(self.names)}; it differs in {', '.join(missing)}."
            )
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            tensor = read_array(state[name], f"{what}, {name}")
            if tensor.shape != shape or not (tensor.is_floating_point() or averaged):
                raise InputError(
                    f"{what}, {name}: expected floats of shape {list(shape)}; got {tensor.dtype} of {list(tensor.shape)}."
                )
            parts.append(tensor.to("cpu", torch.float32).reshape(-1))
        return torch.cat(parts)

    def state(self, vector: Tensor, like: StateDict, what: str = "the result") -> dict[str, Any]:
        """The state dict of a vector ``[d]``: kinds, types and devices as in ``like``, and its other entries.

        Raises:
            InputError: the type of an entry cannot hold its values, as float16 cannot hold 70,000.
        """
        found = dict(like)
        parts = zip(self.names, self.shapes, torch.split(vector, list(self.sizes)), strict=True)
        for name, shape, part in parts:
            value, old = part.reshape(shape), like[name]
            if isinstance(old, Tensor):
                cast: Any = value.to(old.dtype)
                kept, kind = cast.to(torch.float32), str(old.dtype).removeprefix("torch.")
                kept = kept.where(
                    value.abs() <= torch.finfo(old.dtype).max, torch.inf
                )  # some types end at their largest
                cast = cast.to(old.device)
            else:
                with np.errstate(over="ignore"):  # what is lost is said below
                    cast = value.numpy().astype(np.asarray(old).dtype)
                kept, kind = torch.from_numpy(np.asarray(cast, dtype=np.float32)), str(cast.dtype)
            if not bool(kept.isfinite().all()):
                largest = float(value.abs().max())
                raise InputError(
                    f"{what}, {name}: expected values that {kind} can hold; got NaN or infinity from up to {largest:.4g}. Keep "
                    "models in float32, or lower the step."
                )
            found[name] = cast
        return found


def read_state(value: Any, what: str = "the state dict") -> StateDict | None:
    """A state dict unchanged, or read from a safetensors file; None for anything else.

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
