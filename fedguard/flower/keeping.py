"""Where a node keeps its party of secure aggregation while no process of it runs: a file on its own disk.

Flower starts a process for each message, several at once where several messages came, and takes an answer before it takes the
state of a node (its `Context`). A party that was gone on with from there could be made to answer twice. So a node's processes
take turns here, and what a party has become lies on the disk before its answer leaves the process: a process that dies in
between has dropped out, and has not answered.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROUND_BYTES = 8


class Slot:
    """One node's place in a run, for as long as its process has the turn.

    Attributes:
        round: the last that was begun; -1 before the first.
        sealed: its party (`fedguard.secagg.client.Client.keep`); empty where it is over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        self.round = int.from_bytes(data[:_ROUND_BYTES], "little") if data else -1
        self.sealed = data[_ROUND_BYTES:]

    def write(self, round: int, sealed: bytes) -> None:
        """Put it on the disk in one step, and return when it is there, under its name."""
        fresh = self._path.with_suffix(".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(round.to_bytes(_ROUND_BYTES, "little") + sealed)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or a machine that goes down might come back with the state from which it has answered
        finally:
            os.close(folder)
        self.round, self.sealed = round, sealed


@contextmanager
def turn(folder: Path, run: int, node: int) -> Iterator[Slot]:
    """Wait for a node's turn in a run, and have it.

    Args:
        folder: of this node alone, readable to nobody else; made where it is missing.

    Raises:
        OSError: it cannot be made, read or written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = folder / f"secagg-{run}-{node}"
    with os.fdopen(os.open(name.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go with the file, and with a process that dies
        yield Slot(name.with_suffix(".kept"))
