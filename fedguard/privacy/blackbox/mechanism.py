"""What is audited: a mechanism that can be called, and one guarded call of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts.audit import Reals
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters

Arrays: TypeAlias = tuple[NDArray[Any], ...]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Released:
    """What leaves with one release: the arrays, and everything beside them, such as counts and metrics."""

    arrays: Arrays
    beside: Mapping[str, Any] = field(default_factory=dict)


#: One client's update in, what leaves out.
Release: TypeAlias = Callable[[Arrays], Released]


class BlackBoxMechanism(ABC):
    """Code that releases one client's update.

    Attributes:
        name: of the code, in words.
        shapes: of the arrays of an update.
        claim: what it promises; None if it promises nothing.
        facts: what its parameters say; None of a black box.
        defined_in: file and line of the code; None if unknown.
        scalars: whether it takes numbers, of which kinds of array say nothing.
        variants: the same mechanism for a client that also claims something, such as more examples, by that claim in words.
    """

    name: str
    shapes: tuple[Shape, ...]
    claim: EpsilonClaim | None = None
    facts: NoiseParameters | None = None
    defined_in: tuple[str, int] | None = None
    scalars: bool = False
    variants: Mapping[str, BlackBoxMechanism] = MappingProxyType({})

    @abstractmethod
    def fresh(self) -> Release:
        """A new instance, in the state in which a new process would have it."""

    def first_release_elsewhere(self, arrays: Arrays) -> Reals | None:
        """The first release of a new process, float64 ``[d]``; None if it cannot be had."""
        return None

    def is_stateful(self, arrays: Arrays) -> bool:
        """Whether calls change an instance, so that its later releases may differ from the first."""
        return False

    @property
    def size(self) -> int:
        """d, the number of coordinates of an update."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def arrays(self, vector: Reals) -> Arrays:
        """A vector float64 ``[d]`` as an update: float32 arrays of the mechanism's shapes."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1]
        parts = np.split(np.asarray(vector, np.float32), ends)
        return tuple(part.reshape(shape).copy() for part, shape in zip(parts, self.shapes, strict=True))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call.

    Attributes:
        vector: float64: what left, flattened; None if the call raised an exception.
        label: the exception, or the shapes if they differ from the input's; "" else.
        beside: what left beside the update.
    """

    vector: Reals | None
    label: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)


def call(release: Release, arrays: Arrays) -> Outcome:
    """One release of copies of the arrays. An exception is an outcome: one that depends on the data is a finding."""
    try:
        found = release(tuple(array.copy() for array in arrays))
        shapes = [np.shape(one) for one in found.arrays]
        vector = flatten(found.arrays)
    except Exception as error:
        return Outcome(None, type(error).__name__)
    same = shapes == [array.shape for array in arrays]
    return Outcome(vector, "" if same else f"shapes {shapes}", found.beside)


def flatten(arrays: Sequence[Any]) -> Reals:
    """float64 ``[d]``: all entries, one array after the other."""
    parts = [np.asarray(array, np.float64).ravel() for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0)
