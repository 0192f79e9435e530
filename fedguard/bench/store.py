"""Run folders: one JSON record per cell and seed, written so that nothing stored is ever half there.

    runs/<run>/manifest.json           what the run consists of
               config.resolved.yaml    the suite with every default spelled out; runs as it is
               cells/<cell>/seed-003.json
               logs/<cell>-seed-003.log        the traceback of a failed trial
               artifacts/<cell>-seed-003.npy   the final model of a cell without attack

A record is written to a temporary file and renamed. One that cannot be parsed, or whose checksum does not fit, is set
aside as ``seed-003.json.broken`` and counts as missing. Records are parsed, never executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedguard.bench.record import Record, from_text, to_text
from fedguard.errors import StoreError


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
            if (path / "manifest.json").is_file():
                return cls(path)
        known = sorted(path.parent.name for path in store.glob("*/manifest.json"))
        there = (
            f"Runs there: {', '.join(known)}." if known else "There is none yet; make one with `fedguard run SUITE`."
        )
        raise StoreError(f"run {str(run)!r}: not found in {store}. {there}")

    def create(self) -> None:
        """Make the folder and see that it can be written.

        Raises:
            StoreError: it cannot.
        """
        try:
            for name in ("cells", "logs", "artifacts"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "cells" / ".probe", b"")
            (self.path / "cells" / ".probe").unlink()
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written: {error.strerror}. Mend its permissions, or choose another --store."
            ) from None

    def lock(self) -> FileLock:
        """Hold the folder for one writer.

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
                f"{self.path / '.lock'}: cannot be locked: {error.strerror}. Remove what stands there."
            ) from None
        return lock

    def manifest(self) -> dict[str, Any]:
        """What the run consists of.

        Raises:
            StoreError: there is no readable manifest.
        """
        try:
            manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.path / 'manifest.json'}: cannot be read: {error}. Run the suite again; records are kept."
            ) from None
        if not isinstance(manifest, dict) or manifest.get("schema") != 1:
            raise StoreError(
                f"{self.path / 'manifest.json'}: expected schema 1. It was written by another version of FedGuard."
            )
        for key in ("seeds", "swept", "positions", "corners"):
            if not isinstance(manifest.get(key), list):
                raise StoreError(
                    f"{self.path / 'manifest.json'}: damaged: expected a list {key}. Run the suite again; records are kept."
                )
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any], config: str) -> None:
        write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=1).encode())
        write_atomically(self.path / "config.resolved.yaml", config.encode())

    def record_path(self, cell: str, seed: int) -> Path:
        return self.path / "cells" / cell / f"seed-{seed:03d}.json"

    def log_path(self, cell: str, seed: int) -> Path:
        return self.path / "logs" / f"{cell}-seed-{seed:03d}.log"

    def model_path(self, cell: str, seed: int) -> Path:
        return self.path / "artifacts" / f"{cell}-seed-{seed:03d}.npy"

    def read(self, cell: str, seed: int, broken: Callable[[Path], None] = lambda path: None) -> Record | None:
        """The record of one trial, or None. A broken one is reported to ``broken`` and left where it is."""
        path = self.record_path(cell, seed)
        try:
            return from_text(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}.") from None
        except ValueError:
            broken(path)
            return None

    def write(self, record: Record) -> None:
        """Store a record; whatever happens meanwhile, the old one or the new one is there, whole."""
        path = self.record_path(record["cell"], record["seed"])
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, to_text(record))
        except OSError as error:
            raise StoreError(
                f"{path}: cannot be written: {error.strerror}. What is stored is unharmed; run the same command again."
            ) from None


def runs(store: Path) -> Iterator[RunFolder]:
    """The runs of a store, the latest first."""
    found = sorted(store.glob("*/manifest.json"), key=lambda path: -path.stat().st_mtime)
    return (RunFolder(path.parent) for path in found)


def set_aside(path: Path) -> Path:
    """Rename a broken record so that it counts as missing; nothing is deleted."""
    aside = path.with_name(path.name + ".broken")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.broken-{number}")
    path.rename(aside)
    return aside


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary one beside it, which is gone again if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
