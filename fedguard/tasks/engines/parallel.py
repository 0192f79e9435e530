"""Python threads for the engines, and the memory that they may take.

Torch lets go of the interpreter while it computes, so threads need no pickling. Each gets one torch thread of its own, and
there are as many as the caller has torch threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

from fedguard.errors import require

Job = TypeVar("Job")

#: Bytes that the engines of a process may take beside data, models and updates where nobody says.
USUAL_MEMORY = 256 << 20
_floats = USUAL_MEMORY // 4


def set_memory(size: int) -> None:
    """Let the engines of this process take ``size`` bytes, for what they work on and for what they keep between rounds."""
    global _floats  # noqa: PLW0603 - one limit for the process
    require(size > 0, f"memory of the training: expected more than 0 bytes; got {size}.")
    _floats = size // 4


def memory_floats() -> int:
    """How many floats the engines may take."""
    return _floats


def spread(work: Callable[[Job], None], jobs: Sequence[Job]) -> None:
    """Do ``work`` on each job, in as many threads as torch has here. What one raises is raised here."""
    threads = torch.get_num_threads()
    if threads == 1:
        for job in jobs:
            work(job)
        return
    for _ in _pool(threads).map(work, jobs):
        pass
    torch.set_num_threads(threads)  # the pool's threads set it for those born later as well


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "fedguard", initializer=torch.set_num_threads, initargs=(1,))
