"""What an adapter returns."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from numpy.typing import NDArray

from fedguard.contracts.audit import Subject
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters
from fedguard.privacy.blackbox.mechanism import Shape

T = TypeVar("T")

#: A list of arrays in; arrays out, or a pair of arrays and a mapping of what leaves beside them.
Function = Callable[[list[NDArray[Any]]], Any]


@dataclass(frozen=True, kw_only=True)
class ForeignRelease:
    """A foreign mechanism as a function of one client's update.

    Attributes:
        make: makes a new instance.
        claim: what its own parameters or accountant promise; None if they promise nothing.
        facts: what its parameters say of its noise; None if they do not determine it.
        shapes: of the arrays that it takes, if it takes no others.
        stateful: whether later releases of an instance may differ from its first; None if calls show it.
        scalars: whether it takes numbers, so that kinds of array and values that are no numbers say nothing of it.
        variants: by what one client can claim beside its update, in words: the same mechanism under that claim.
    """

    make: Callable[[], Function]
    claim: EpsilonClaim | None = None
    facts: NoiseParameters | None = None
    shapes: tuple[Shape, ...] | None = None
    stateful: bool | None = None
    scalars: bool = False
    variants: Mapping[str, ForeignRelease] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CanaryTraining:
    """A training whose records are canaries: one run is many samples.

    Attributes:
        subject: see `fedguard.privacy.audit`.
        canaries: number of records that may be in or out.
        claim: what its accountant promises of the whole run; known only after a run if the subject's own claim is.
    """

    subject: Subject
    canaries: int
    claim: EpsilonClaim | None = None


@dataclass(frozen=True, kw_only=True)
class AccountedEvent:
    """An event of an accountant: nothing to call.

    Attributes:
        epsilon: rounds, delta -> epsilon under add-or-remove.
    """

    epsilon: Callable[[int, float], float]
    describe: str


Adapted = ForeignRelease | CanaryTraining | AccountedEvent
#: An object and the shapes that the user asks for -> what can be audited; None if the object is none of its own.
Adapter = Callable[[Any, Sequence[Shape]], Adapted | None]

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
#: Types of generators, by name: torch's is not imported for this.
_GENERATORS = ("Generator", "RandomState", "Random", "SystemRandom")
#: How deep parts of an object are looked for.
DEPTH = 4


def copy_fresh(found: T, instead: Mapping[int, Any] | None = None) -> T:
    """A deep copy of an object in the state in which it was given, with locks of its own.

    Generators are shared: copies of one would draw the same noise again, which no new instance does.

    Args:
        instead: by `id`, what stands in the copy for parts that cannot be copied.
    """
    memo: dict[int, Any] = {}
    for part in _walk(found, DEPTH):
        if isinstance(part, _LOCKS):
            memo[id(part)] = threading.Lock() if isinstance(part, _LOCKS[0]) else threading.RLock()
        elif type(part).__name__ in _GENERATORS:
            memo[id(part)] = part
    return copy.deepcopy(found, {**memo, **(instead or {})})


def _walk(found: Any, depth: int) -> Iterator[Any]:
    yield found
    if depth:
        parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, (list, tuple)) else ()
        for part in (*parts, *getattr(found, "__dict__", {}).values()):
            yield from _walk(part, depth - 1)
