"""No process outlives its trial: NVFlare's simulator starts its sites in sessions of their own, out of reach of a signal.

A process of its own waits until the trial's process closes a pipe, by ending or by being killed. Then it ends all processes
that carry the trial's mark in their environment. `python -m fedguard.bridges.nvflare.ending MARK`
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Environment variable that all processes of a trial inherit.
MARK = "FEDGUARD_TRIAL"


@contextmanager
def end_together() -> Iterator[dict[str, str]]:
    """The environment for processes that end with this block, or with this process, however it ends."""
    mark = f"{os.getpid()}-{uuid.uuid4().hex}"
    # Its session is its own: it outlives a signal to the group of the trial
    watch = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, mark], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield {MARK: mark}
    finally:
        assert watch.stdin is not None
        watch.stdin.close()
        watch.wait()


def find_marked(mark: str) -> list[int]:
    """Processes with the mark in their environment, except ended ones."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end(mark: str) -> None:
    """End all processes with the mark, and what they start meanwhile."""
    while running := find_marked(mark):
        for number in running:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.buffer.read()  # returns when the last holder of the pipe has closed it
    end(sys.argv[1])
