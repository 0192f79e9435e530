"""Engines run jobs in workers and return the messages of the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Job = Mapping[str, Any]


@dataclass(frozen=True)
class WorkerMessage:
    """A message about a job: progress, a record, or the end of the worker that had it.

    Attributes:
        job: the job.
        message: the worker's message; None if the worker ended. ``{"lost": why}`` if the engine starts the job again.
        ended: why the worker ended (``the worker process was lost: killed by SIGKILL``, ``timed out after 60 s``).
        log: further information, such as a traceback of the worker.
    """

    job: Job
    message: Mapping[str, Any] | None
    ended: str = ""
    log: str = ""


class WorkerPool(Protocol):
    """A pool of workers."""

    def free(self) -> int:
        """Number of jobs that can start now."""

    def submit(self, job: Job) -> None:
        """Start a job; only if `free` is positive."""

    def wait(self, timeout: float) -> WorkerMessage | None:
        """The next message, or None after ``timeout`` seconds without one."""

    def close(self) -> None:
        """End all workers at once, whatever they are running."""
