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
import time
from collections.abc import Mapping
from typing import Any

from fedguard.bench.running.engines import Job, WorkerMessage

#: Seconds beyond its limit in which a worker can write its traceback.
GRACE = 0.5
#: Lines kept of standard error: a traceback has up to a hundred frames, the innermost first, for each thread.
LONGEST = 250


class LocalPool:
    """``jobs`` worker processes, started at once so that they load their libraries while the suite is laid out.

    The pool replaces a worker if its job exceeds the time limit or changed state that later jobs in the process would find.

    Args:
        start: first message to every worker: plug-in modules, and where to look for them.
        timeout: time limit of a job in seconds; None for no limit.
    """

    def __init__(self, jobs: int, start: Mapping[str, Any], timeout: float | None = None) -> None:
        self._start = json.dumps({**start, "timeout": timeout})
        self._timeout = timeout
        self._heard: queue.Queue[tuple[_WorkerProcess, str | None]] = queue.Queue()
        self._workers = [_WorkerProcess(self._start, self._heard) for _ in range(jobs)]

    def free(self) -> int:
        return sum(worker.job is None for worker in self._workers)

    def ready(self) -> bool:
        """Whether all workers have loaded their libraries."""
        return all(worker.ready for worker in self._workers)

    def submit(self, job: Job) -> None:
        worker = next(worker for worker in self._workers if worker.job is None)
        worker.give(job)

    def wait(self, timeout: float) -> WorkerMessage | None:
        try:
            worker, line = self._heard.get(timeout=timeout)
        except queue.Empty:
            return self._overdue()
        if worker not in self._workers:  # its last words, after it was replaced
            return self._overdue()
        if line is None:
            return self._recover_worker(worker)
        message = json.loads(line)
        if "ready" in message:
            worker.begin()
        if worker.job is None or "ready" in message:
            return None
        said = WorkerMessage(worker.job, message)
        if "record" in message:
            worker.job = None
            if message["changed"]:
                self._replace(worker)
            return said
        # Here too: workers that report progress keep the queue from ever being empty, and the limit would not be checked
        return self._overdue() or said

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _recover_worker(self, dead: _WorkerProcess) -> WorkerMessage | None:
        """Replace a worker that died; only its job is lost."""
        ended, job = dead.how_it_ended(), dead.job
        if not dead.ready:  # it did not even start: another one would not either
            raise RuntimeError(
                f"a worker process ended before its first trial ({ended}): {' | '.join(dead.last_words(3))}"
            )
        self._replace(dead)
        return (
            None
            if job is None
            else WorkerMessage(job, None, f"the worker process was lost: {ended}", "\n".join(dead.last_words()))
        )

    def _overdue(self) -> WorkerMessage | None:
        """End a worker if its job exceeds the time limit."""
        if self._timeout is None:
            return None
        late = next((one for one in self._workers if one.busy_for() > self._timeout + GRACE), None)
        if late is None or late.job is None:
            return None
        self._replace(late)
        return WorkerMessage(
            late.job, None, f"timed out after {self._timeout:g} s", "\n".join(late.last_words(LONGEST))
        )

    def _replace(self, worker: _WorkerProcess) -> None:
        # Out of the list before it is killed, so that `wait` ignores the end of its output
        self._workers[self._workers.index(worker)] = _WorkerProcess(self._start, self._heard)
        worker.kill()


class _WorkerProcess:
    """One process, and the threads that read its output."""

    def __init__(self, start: str, heard: queue.Queue[tuple[_WorkerProcess, str | None]]) -> None:
        self.job: Job | None = None
        self.ready = False
        self._began = 0.0
        self._heard = heard
        self._errors: list[str] = []
        # Its own session, so that Ctrl-C reaches the parent alone, which then ends the workers in order.
        # -P keeps the working directory off sys.path, where a user's torch.py would hide the library.
        # One thread: the pool already has a process for each core, and more threads would sum in another order.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fedguard.bench.running.worker"],
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
        self._began = time.monotonic()
        self._send(json.dumps(job))

    def begin(self) -> None:
        """Mark the worker as ready: it has loaded its libraries, and only now takes the job that it was given."""
        self.ready = True
        self._began = time.monotonic()  # loading the libraries does not count toward the limit

    def busy_for(self) -> float:
        """Seconds since the worker took its job; 0 without a job."""
        return time.monotonic() - self._began if self.ready and self.job is not None else 0.0

    def kill(self) -> None:
        """End the process at once, with all processes of its group, such as those started by plug-ins."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, AttributeError):  # the second on Windows
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own
            self._process.kill()
        self.how_it_ended()

    def how_it_ended(self) -> str:
        """Wait for the end of the process, close its pipes, and return the reason."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join(timeout=5)  # a process that left the group may hold the pipe open, so do not wait forever
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def last_words(self, lines: int = 50) -> list[str]:
        """The last lines of standard error; after a timeout, they hold the traceback."""
        return self._errors[-lines:]

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
        # Read all of it, or a full pipe would block the worker; keep little, since a plug-in may print without end
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-LONGEST:], line.rstrip()]


def default_jobs() -> int:
    """Number of cores that this process may use."""
    # Not cpu_count, which ignores the affinity of a batch job or container
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
