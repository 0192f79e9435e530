"""Remote workers: a worker process on another machine, the files that it needs, and the return of its results.

This module does not depend on the cluster: `fedguard.bench.running.engines.ray` makes an actor of `RemoteWorker`. Trials run
in a separate process, as without a cluster (`fedguard.bench.running.engines.local`), so that crashes, timeouts and state
changed by plug-ins are handled in the same way.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from fedguard.bench.records.record import to_text
from fedguard.bench.records.store import write_atomically
from fedguard.bench.running.engines import Job
from fedguard.bench.running.engines.local import LocalPool

if TYPE_CHECKING:
    from fedguard.config import Plan
    from fedguard.contracts import Algorithm

#: Folders of the plug-ins, of the data, and of the run.
PLUGINS, DATA, RUN = "plugins", "data", "run"


@dataclass(frozen=True)
class JobFiles:
    """Files that travel with a job, by path: plug-ins with the Python files beside them, and data files.

    Only paths relative to the working directory of the command travel. Each machine needs its own copy of all other files.
    """

    files: Mapping[str, bytes]

    @classmethod
    def of(cls, plan: Plan) -> JobFiles:
        """The files that the trials of a plan need."""
        found: dict[str, bytes] = {}
        folder = plan.known.folder
        if folder is not None and folder.is_dir():
            packages = [init.parent for init in folder.glob("*/__init__.py")]
            modules = [*folder.glob("*.py"), *(file for package in packages for file in package.rglob("*.py"))]
            found |= {f"{PLUGINS}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in modules}
        named = {path for cell in plan.cells for part in (cell.data, cell.availability) for path in _paths(part)}
        for path in sorted(named):
            files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
            found |= {f"{DATA}/{file.as_posix()}": file.read_bytes() for file in files}
        return cls(found)

    def unpack_files(self, into: Path) -> None:
        """Write all files below a folder."""
        for name, content in self.files.items():
            file = into / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def _paths(part: Algorithm | None) -> Iterator[Path]:
    """Parameters of an algorithm that are paths of existing files or folders below the working directory."""
    if part is None:
        return
    for value in (getattr(part, field.name) for field in part.fields()):
        if isinstance(value, str) and value:
            path = PurePath(value)
            with suppress(OSError, ValueError):  # any text may stand here: too long for a path, or with a null byte
                if not path.is_absolute() and ".." not in path.parts and path.parts and Path(path).exists():
                    yield Path(path)


class RemoteWorker:
    """One worker; it passes on messages as they arrive.

    Args:
        start: first message to the process (`fedguard.bench.running.worker`), with the folder of the plug-ins on the machine
            that runs the command.
        timeout: time limit of a trial in seconds.
        luggage: files to unpack here; None on the machine that runs the command, which has them.
    """

    def __init__(self, start: Mapping[str, Any], timeout: float | None, luggage: JobFiles | None) -> None:
        self._here = Path(tempfile.mkdtemp(prefix="fedguard-seat-"))
        if luggage is not None:
            luggage.unpack_files(self._here)
            (self._here / DATA).mkdir(exist_ok=True)
            (self._here / PLUGINS).mkdir(exist_ok=True)
            os.chdir(self._here / DATA)  # paths in the suite are relative; an actor has a process of its own
            if start["folder"] is not None:
                start = {**start, "folder": str(self._here / PLUGINS)}
        self._pool = LocalPool(1, start, timeout)

    def ready(self) -> None:
        """Wait until the worker has loaded its libraries and the plug-ins.

        Raises:
            RuntimeError: it cannot load them.
        """
        try:
            while not self._pool.ready():
                self._pool.wait(0.5)
        except RuntimeError as error:
            raise RuntimeError(
                f"no worker starts on {socket.gethostname()}: {str(error).rsplit(' | ', 1)[-1]}"
            ) from None

    def trial(self, job: Job, clean_model: bytes | None) -> Iterator[dict[str, Any]]:
        """Run a trial and yield its messages.

        Args:
            clean_model: content of the job's file with the model of the cell without attack.

        Yields:
            ``message``, ``ended`` and ``log`` as in `fedguard.bench.running.engines.WorkerMessage`. The last message has the
            sealed ``record``, and ``files``: the artifacts of the trial, by name.
        """
        run = self._here / RUN
        shutil.rmtree(run, ignore_errors=True)  # all artifacts found later are those of this trial
        artifacts = run / "artifacts"
        artifacts.mkdir(parents=True)
        here = {**job, "folder": str(run), "clean_model": str(run / "clean.npy")}
        if job["model"] is not None:
            here["model"] = str(artifacts / Path(job["model"]).name)
        if clean_model is not None:
            (run / "clean.npy").write_bytes(clean_model)
        self._pool.submit(here)
        over = False
        while not over:
            said = self._pool.wait(0.5)
            if said is None:
                continue
            message, record = dict(said.message) if said.message is not None else None, None
            if message is not None and "record" in message:
                record = to_text(message.pop("record"))  # sealed here, so that damage on the way is noticed
            over = message is None or record is not None
            files = {file.name: file.read_bytes() for file in artifacts.iterdir()} if over else {}
            yield {"message": message, "record": record, "ended": said.ended, "log": said.log, "files": files}

    def close(self) -> None:
        """End the worker at once, and remove its files."""
        self._pool.close()
        shutil.rmtree(self._here, ignore_errors=True)


def store_artifacts(files: Mapping[str, bytes], folder: Path) -> None:
    """Store the artifacts of a trial under their own names."""
    # Only the last part of a name: one with ".." or a root would otherwise write outside the run
    for name, content in files.items():
        write_atomically(folder / "artifacts" / Path(name).name, content)


def clean_model_of(job: Job) -> bytes | None:
    """Content of the job's file with the clean model; None if there is no such file."""
    with suppress(OSError):
        return Path(job["clean_model"]).read_bytes()
    return None
