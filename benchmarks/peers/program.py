"""A program in an interpreter of its own, that is asked in lines of JSON, and the CPU time that it takes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


class Program:
    """Answers each line with a line. It may start processes of its own."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self._errors = name, folder / f"errors of {name}"
        environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment.pop(variable, None)  # each has the threads that it chooses
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(command, **pipes, stderr=errors, env=environment)

    def ask(self, question: object) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(question), file=self._process.stdin, flush=True)
        answer: str = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} stopped; the end of what it said:\n{self._errors.read_text()[-2000:]}")
        return answer

    def cpu(self) -> float:
        """CPU seconds of the process, of all that descend from it, and of those of them that have ended; from /proc."""
        used: dict[int, float] = {}
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                facts = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            process = int(stat.parent.name)
            children.setdefault(int(facts[1]), []).append(process)
            used[process] = sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")
        tree = [self._process.pid]
        for process in tree:
            tree += children.get(process, [])
        return sum(used.get(process, 0.0) for process in tree)

    def close(self) -> None:
        """No more questions: it should end by itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
