"""The state of a node's protocol client while no process of the node runs: a file on its own disk.

Flower starts a process for every message, may run several for one node at once, and takes an answer before it takes the state
of the node (its `Context`). A client that resumed from that state could be made to answer twice. Therefore the processes of a
node take turns here, and the new state is on the disk before the answer leaves the process. A process that dies in between has
dropped out, and has not answered.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROUND_BYTES = 8


class Slot:
    """The file of one node in a run, while its process has the turn.

    Attributes:
        round: the last round that was started; -1 before the first.
        sealed: state of its client (`fedguard.secagg.client.Client.keep`); empty if that round is over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes() if path.exists() else b""
        self.round = int.from_bytes(data[:_ROUND_BYTES], "little") if data else -1
        self.sealed = data[_ROUND_BYTES:]

    def write(self, round: int, sealed: bytes) -> None:
        """Replace the file atomically, and return once it is on the disk under its name."""
        # Beside the old file: only within one file system is a rename atomic
        fresh = self._path.with_suffix(".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(round.to_bytes(_ROUND_BYTES, "little") + sealed)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        # The rename itself must be on the disk: else a machine that goes down may return with the state before the answer
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.round, self.sealed = round, sealed


@contextmanager
def turn(folder: Path, run: int, node: int) -> Iterator[Slot]:
    """Wait for the turn of this process among the processes of a node in a run, and hold it.

    Args:
        folder: belongs to this node, and only its user can read it; created if it is missing.

    Raises:
        OSError: the folder cannot be created, read or written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = folder / f"secagg-{run}-{node}"
    # A file of its own, since the one with the state is replaced: a lock on it would stay with the old one
    with os.fdopen(os.open(name.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go with the file, and with a process that dies
        yield Slot(name.with_suffix(".kept"))
