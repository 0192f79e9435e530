"""Run folders: one JSON record per cell and seed, written atomically.

    runs/<run>/manifest.json           what the run consists of
               config.resolved.yaml    the suite with every default spelled out; runs as it is
               cells/<cell>/seed-003.json
               logs/<cell>-seed-003.log        the traceback of a failed trial
               artifacts/<cell>-seed-003.npy   the final model of a cell without attack
                         <cell>-seed-003-replay.npz      rounds kept for a replay (`fedguard.bench.records.replay`)

A record is written to a temporary file and renamed. Readers report a damaged record and treat it as missing; `fedguard run`
sets it aside as ``seed-003.json.broken`` and runs its trial again. Stored files are parsed, never executed
(`fedguard.bench.records.reading`).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from fedguard.bench.records.reading import DamagedFile, content, parse_json
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.records.schema import MANIFEST, Manifest, Record
from fedguard.errors import StoreError

if TYPE_CHECKING:
    from fedguard.config import Document


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def find(cls, run: str | Path, store: Path) -> RunFolder:
        """The folder of an existing run, by its name in the store or by its path.

        Raises:
            StoreError: there is none.
        """
        for path in (store / str(run), Path(run)):
            # Not exists: a manifest that is a broken link is an error to report, not a run that is not there
            if os.path.lexists(path / "manifest.json"):
                return cls(path)
        known = sorted(folder.path.name for folder in runs(store))
        there = (
            f"Runs there: {', '.join(known)}." if known else "There is none yet; make one with `fedguard run SUITE`."
        )
        raise StoreError(f"run {str(run)!r}: not found in {store}. {there}")

    def create(self) -> None:
        """Make the folder and check that it can be written.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            for name in ("cells", "logs", "artifacts"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            # mkdir passes on a read-only folder that exists; without a probe the first record would fail, after its training
            write_atomically(self.path / "cells" / ".probe", b"")
            (self.path / "cells" / ".probe").unlink()
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written: {error.strerror}. Fix its permissions, or choose another --store."
            ) from None

    def lock(self) -> FileLock:
        """Lock the folder for one writer.

        Raises:
            StoreError: another process is writing to it.
        """
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StoreError(
                f"{self.path}: another `fedguard run` is writing there. Wait for it, or choose another --name."
            ) from None
        except OSError as error:  # a link in its place is not followed
            raise StoreError(
                f"{self.path / '.lock'}: cannot be locked: {error.strerror}. Remove what is there."
            ) from None
        return lock

    def remove_leftovers(self) -> None:
        """Remove temporary files of processes that were killed while writing. The caller holds the lock.

        Records, logs, artifacts and the manifest are written under the lock, so no other process is writing them. Verdicts
        and audits are written without it: of these, only files of processes of this host that no longer exist are removed.
        """
        locked = {self.path / name for name in ("cells", "logs", "artifacts")}
        for temporary in self.path.rglob(".*.tmp"):
            held = locked & set(temporary.parents) or temporary.name.startswith(
                (".manifest.json.", ".config.resolved.yaml.")
            )
            if held or not _is_written_elsewhere(temporary):
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def manifest(self) -> Manifest:
        """What the run consists of.

        Raises:
            StoreError: there is no readable manifest.
        """
        path = self.path / "manifest.json"
        try:
            return parse_json(MANIFEST, content(path))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read: {error}. Run the suite again; records are kept.") from None

    def config(self) -> Document:
        """The suite with every default spelled out.

        Raises:
            StoreError: there is no such file.
            ConfigError: it cannot be read.
        """
        from fedguard.config import read_document  # here, since it loads torch, which readers do not need

        path = self.path / "config.resolved.yaml"
        if not path.is_file():
            raise StoreError(f"{path}: no such file. Run the suite again; records are kept.")
        return read_document(path)

    def write_manifest(self, manifest: Mapping[str, Any], config: str) -> None:
        """Store what the run consists of.

        Raises:
            StoreError: it cannot be written.
        """
        for name, text in (("manifest.json", json.dumps(manifest, indent=1)), ("config.resolved.yaml", config)):
            try:
                write_atomically(self.path / name, text.encode())
            except OSError as error:
                raise StoreError(
                    f"{self.path / name}: cannot be written: {error.strerror}. Remove what is there."
                ) from None

    def record_path(self, cell: str, seed: int) -> Path:
        return self.path / "cells" / cell / f"seed-{seed:03d}.json"

    def log_path(self, cell: str, seed: int) -> Path:
        return self.path / "logs" / f"{cell}-seed-{seed:03d}.log"

    def model_path(self, cell: str, seed: int) -> Path:
        return self.path / "artifacts" / f"{cell}-seed-{seed:03d}.npy"

    def replay_path(self, cell: str, seed: int) -> Path:
        return self.path / "artifacts" / f"{cell}-seed-{seed:03d}-replay.npz"

    def read(self, cell: str, seed: int, broken: Callable[[DamagedFile], None] = lambda found: None) -> Record | None:
        """The record of one trial, or None. A damaged one is reported to ``broken`` and left where it is."""
        path = self.record_path(cell, seed)
        if not (self.path / "cells").is_dir():
            return None
        try:
            record = from_text(content(path))
            if (record["cell"], record["seed"]) != (cell, seed):  # a file that was copied keeps a valid checksum
                raise ValueError(f"it is the record of another trial: of cell {record['cell']}, seed {record['seed']}")
            return record
        except FileNotFoundError:
            return None
        except ValueError as error:
            broken(DamagedFile(path, str(error)))
            return None

    def write(self, record: Record) -> None:
        """Store a record atomically: after a crash, the old or the new record is there, whole."""
        path, text = self.record_path(record["cell"], record["seed"]), to_text(record)
        # Readers drop fields that the schema lacks: one would be stored under the seal, and yet never seen again
        assert from_text(text) == json.loads(text), (
            f"{path}: a field of the record has no place in fedguard.bench.records.schema"
        )
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be written: {error.strerror}. What is stored is unharmed; run the same command again."
            ) from None


def runs(store: Path) -> Iterator[RunFolder]:
    """The runs of a store, the latest first, including runs with an unreadable manifest."""
    found = []
    for folder in store.iterdir() if store.is_dir() else ():
        with contextlib.suppress(OSError):  # no manifest: not a run
            found.append(((folder / "manifest.json").lstat().st_mtime, folder))
    return (RunFolder(folder) for _, folder in sorted(found, key=lambda one: (-one[0], one[1])))


#: What a run stores in its folder
STORED = frozenset({"manifest.json", "config.resolved.yaml", "cells", "artifacts", "gate"})


def is_stored(file: Path) -> bool:
    """Whether a run is stored in this file, among others: nothing else may be written to it, whoever asks for it."""
    file = Path(os.path.realpath(file))
    for folder in file.parents:
        if (folder / "manifest.json").is_file() and (folder / "cells").is_dir():
            return file.relative_to(folder).parts[0] in STORED
    return False


def set_aside(path: Path) -> Path:
    """Rename a broken record, or a file in the place of its folder, so that it counts as missing; nothing is deleted."""
    if not path.parent.is_dir():
        path = path.parent
    aside = path.with_name(path.name + ".broken")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.broken-{number}")
    path.rename(aside)
    return aside


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary file beside it, which is removed if writing fails."""
    with open_atomically(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` that replaces it once written, and is removed if writing fails.

    The name of the temporary file contains host and process, so that leftovers can be distinguished from work in progress.
    """
    # In the same folder, since a rename is atomic within one file system only
    temporary = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # before the rename, or a power failure may leave the new name without its content
        temporary.replace(path)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise


def _is_written_elsewhere(temporary: Path) -> bool:
    """Whether a process that may still run writes this temporary file; always true of files from other hosts."""
    host, _, process = temporary.name.removesuffix(".tmp").rpartition(".")
    if not process.isdigit() or not host.endswith(f".{platform.node()}"):
        return True
    try:
        os.kill(int(process), 0)  # no signal: it only asks whether the process exists
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to another user
        pass
    return True
