"""An engine without processes: the worker's code runs in this one, which saves the seconds that a process takes to start."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from fedguard.bench.engines import Job, Said
from fedguard.bench.engines.local import LocalPool
from fedguard.bench.worker import serve


def pool(jobs: int, start: Mapping[str, Any], timeout: float | None = None) -> Inline | LocalPool:
    """In the place of `LocalPool`. Plug-ins need processes: a module that has changed since is imported once in each."""
    needs_processes = start["plugins"] or timeout is not None or start["device"] != "cpu"
    return LocalPool(jobs, start, timeout) if needs_processes else Inline(start["memory"])


class Inline:
    """One trial after the other, each when somebody waits for it; what is said takes the way through JSON, as ever."""

    def __init__(self, memory: int | None) -> None:
        self._memory = memory
        self._job: Job | None = None
        self._said: deque[Said] = deque()

    def free(self) -> int:
        return int(self._job is None and not self._said)

    def submit(self, job: Job) -> None:
        self._job = json.loads(json.dumps(job))

    def wait(self, timeout: float) -> Said | None:
        job, self._job = self._job, None
        if job is not None:

            def say(message: dict[str, Any]) -> None:
                self._said.append(Said(job, json.loads(json.dumps(message))))

            say(serve(job, say, self._memory))
        return self._said.popleft() if self._said else None

    def close(self) -> None:
        self._said.clear()
