"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from fedguard.bench.engines import Job, Said


class LocalPool:
    """``jobs`` workers, started at once so that they load their libraries while the suite is laid out.

    Args:
        start: what every worker is told first: plug-in modules, and where to look for them.
    """

    def __init__(self, jobs: int, start: Mapping[str, Any]) -> None:
        self._start = json.dumps(start)
        self._heard: queue.Queue[tuple[_Worker, str | None]] = queue.Queue()
        self._workers = [_Worker(self._start, self._heard) for _ in range(jobs)]

    def free(self) -> int:
        return sum(worker.job is None for worker in self._workers)

    def submit(self, job: Job) -> None:
        worker = next(worker for worker in self._workers if worker.job is None)
        worker.give(job)

    def wait(self, timeout: float) -> Said | None:
        try:
            worker, line = self._heard.get(timeout=timeout)
        except queue.Empty:
            return None
        job = worker.job
        if line is None:
            return self._replace(worker)
        message = json.loads(line)
        if "ready" in message:
            worker.ready = True
        if job is None or "ready" in message:
            return None
        if "record" in message:
            worker.job = None
        return Said(job, message)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _replace(self, dead: _Worker) -> Said | None:
        """Put a new worker in the place of one that died; its job is lost, nothing else."""
        if dead not in self._workers:
            return None
        ended = dead.how_it_ended()
        if not dead.ready:  # it did not even start: another one would not either
            raise RuntimeError(f"a worker process ended before its first trial ({ended}): {dead.last_words()}")
        self._workers[self._workers.index(dead)] = _Worker(self._start, self._heard)
        return Said(dead.job, None, ended) if dead.job is not None else None


class _Worker:
    """One process, and the thread that reads what it says."""

    def __init__(self, start: str, heard: queue.Queue[tuple[_Worker, str | None]]) -> None:
        self.job: Job | None = None
        self.ready = False
        self._heard = heard
        self._errors: list[str] = []
        # Its own session, so that Ctrl-C reaches the parent alone, which then ends the workers in order.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedguard.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._send(start)
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._listen, self._collect_errors)]
        for reader in self._readers:
            reader.start()

    def give(self, job: Job) -> None:
        self.job = job
        self._send(json.dumps(job))

    def kill(self) -> None:
        self._process.kill()
        self.how_it_ended()

    def how_it_ended(self) -> str:
        """Wait for the end, and let go of everything."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def last_words(self) -> str:
        return " | ".join(self._errors[-3:])

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died, and the listening thread says so
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put((self, line))
        self._heard.put((self, None))

    def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-50:], line.rstrip()]


def default_jobs() -> int:
    """As many workers as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
