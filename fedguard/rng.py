"""Randomness: one root seed, named children, no global state.

    >>> Rng(0).child("round", 3, "client", 7) == Rng(0).child("round", 3).child("client", 7)
    True
    >>> Rng(0).child("round", 3).numpy().random() == Rng(0).child("round", 3).numpy().random()
    True

A child's stream depends on the root seed and on the names on the path to it, and on nothing else: not on the number of earlier
draws, nor on which other children exist. So adding a client, an attack or a process changes no other party's draws. Keys and
masks of secure aggregation never come from here; they come from the operating system. Secret noise for privacy comes from there
too (`Rng.secret`), because the seed reveals everything that is drawn from it.

FedGuard itself draws from no global generator. The user's own code may, so a trial sets these generators from its seed.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy
    import torch


#: The largest root seed: storage of records and JSON readers keep integers of 63 bits
MOST_SEED = 2**62


@dataclass(frozen=True)
class Rng:
    """A node in the tree of random streams.

    The stream's 128-bit seed is BLAKE2b of the root seed and the path, each name tagged with its type so that
    ``child(1)`` and ``child("1")`` differ.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    @classmethod
    def secret(cls) -> Rng:
        """A secret root: 128 bits from the operating system, which are stored nowhere."""
        return cls(secrets.randbits(128))

    def child(self, *names: str | int) -> Rng:
        """The stream named ``names`` below this one; ``child(a, b) == child(a).child(b)``."""
        return Rng(self.seed, self.path + names)

    def apart(self) -> Rng:
        """An independent stream to hand out: as good as a child, but its root seed leads to no other stream of the tree."""
        return Rng(self.entropy())

    def entropy(self) -> int:
        """The 128-bit seed of this node's stream."""
        text = "\x1f".join(f"{type(name).__name__}:{name}" for name in (self.seed, *self.path))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")

    def numpy(self) -> numpy.random.Generator:
        """A fresh numpy generator at the start of this node's stream."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(self.entropy()))

    def torch(self) -> torch.Generator:
        """A fresh torch CPU generator at the start of this node's stream."""
        import torch

        return torch.Generator().manual_seed(self.entropy() % 2**63)


#: One stream for all, or one for each
Streams: TypeAlias = Rng | Sequence[Rng]


@contextlib.contextmanager
def global_generators(rng: Rng) -> Iterator[Callable[[], list[str]]]:
    """Set Python's, numpy's and torch's global generators to the start of a stream, and restore them afterwards.

    Yields:
        a function that returns, in words, which of them have been drawn from so far.
    """
    import numpy as np
    import torch

    def states() -> dict[str, bytes]:
        return {
            "Python's": repr(random.getstate()).encode(),
            "numpy's": repr(
                [part if isinstance(part, str | int | float) else part.tobytes() for part in legacy()]
            ).encode(),
            "torch's": torch.get_rng_state().numpy().tobytes(),
        }

    legacy = np.random.get_state
    before = random.getstate(), legacy(), torch.get_rng_state()
    random.seed(rng.entropy())
    np.random.seed(rng.child("numpy").entropy() % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(rng.entropy() % 2**63)
    start = states()
    try:
        yield lambda: [name for name, state in states().items() if state != start[name]]
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
