"""An engine without processes: the worker's code runs in this one, which saves the seconds that a process takes to start."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedguard.bench.running.engines import Job, WorkerMessage
from fedguard.bench.running.engines.local import LocalPool
from fedguard.bench.running.workbench import Workbench
from fedguard.bench.running.worker import serve
from fedguard.registry import Registry, load_registry


def pool(jobs: int, start: Mapping[str, Any], timeout: float | None = None) -> Inline | LocalPool:
    """In the place of `LocalPool`, but for time limits and other devices."""
    if timeout is not None or start["device"] != "cpu":
        return LocalPool(jobs, start, timeout)
    folder = None if start["folder"] is None else Path(start["folder"])
    return Inline(
        load_registry().with_modules(start["plugins"], folder),
        Workbench(memory=start["memory"], secret_noise=start["secret_noise"]),
    )


class Inline:
    """One trial after the other, each when somebody waits for it; what is said takes the way through JSON, as ever."""

    def __init__(self, known: Registry, bench: Workbench) -> None:
        self._known, self._bench = known, bench
        self._job: Job | None = None
        self._said: deque[WorkerMessage] = deque()

    def free(self) -> int:
        return int(self._job is None and not self._said)

    def submit(self, job: Job) -> None:
        self._job = json.loads(json.dumps(job))

    def wait(self, timeout: float) -> WorkerMessage | None:
        job, self._job = self._job, None
        if job is not None:

            def say(message: dict[str, Any]) -> None:
                self._said.append(WorkerMessage(job, json.loads(json.dumps(message))))

            say(serve(job, self._known, self._bench, say))
        return self._said.popleft() if self._said else None

    def close(self) -> None:
        self._said.clear()
