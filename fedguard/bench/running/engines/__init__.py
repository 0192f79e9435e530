"""Where workers run. An engine takes jobs and hands back what their workers say."""

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
        message: what the worker said; None if it is gone. ``{"lost": why}`` of a job that the engine starts again.
        ended: why it is gone (``the worker process was lost: killed by SIGKILL``, ``timed out after 60 s``).
        log: what is known beside that, such as where it stood.
    """

    job: Job
    message: Mapping[str, Any] | None
    ended: str = ""
    log: str = ""


class WorkerPool(Protocol):
    """A pool of workers."""

    def free(self) -> int:
        """How many more jobs can start now."""

    def submit(self, job: Job) -> None:
        """Start a job; only while something is free."""

    def wait(self, timeout: float) -> WorkerMessage | None:
        """The next message, or None after ``timeout`` seconds without one."""

    def close(self) -> None:
        """End all workers at once, with whatever they have in hand."""
