"""Python threads for the engines.

Torch releases the interpreter lock while it computes, so threads run in parallel without pickling. Each Python thread has one
torch thread, and there are as many as the caller has torch threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

Job = TypeVar("Job")


def spread(work: Callable[[Job], None], jobs: Sequence[Job]) -> None:
    """Do ``work`` on each job, in as many threads as torch has here. An exception in a thread is raised here."""
    threads = torch.get_num_threads()
    if threads == 1:
        for job in jobs:
            work(job)
        return
    # `map` raises what a job raised only when its result is asked for
    for _ in _pool(threads).map(work, jobs):
        pass
    torch.set_num_threads(threads)  # the pool's threads set it for those born later as well


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "fedguard", initializer=_alone)


def _alone() -> None:
    """Set one torch thread; the second call fixes it, since a thread adopts torch's number when it first asks for it."""
    torch.set_num_threads(1)
    torch.get_num_threads()
