"""A seat in a cluster: a worker process on another machine, what it needs there, and the way home for what it makes.

Nothing here knows the cluster: `fedguard.bench.running.engines.ray` makes an actor of it. A trial runs in a process of its own,
as it would without a cluster (`fedguard.bench.running.engines.local`): a crash, a hang and what a plug-in changes end as there.
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

#: Where the plug-ins stand among what travels, where the data do, and where the run's folder is.
PLUGINS, DATA, RUN = "plugins", "data", "run"


@dataclass(frozen=True)
class JobFiles:
    """What travels with a job, by its path: plug-ins with the Python files beside them, and the files that hold data.

    Files whose paths are not relative to where the command was started stay where they are: each machine has to have them.
    """

    files: Mapping[str, bytes]

    @classmethod
    def of(cls, plan: Plan) -> JobFiles:
        """What the trials of a plan need."""
        found: dict[str, bytes] = {}
        folder = plan.known.folder
        if folder is not None and folder.is_dir():
            packages = [init.parent for init in folder.glob("*/__init__.py")]
            modules = [*folder.glob("*.py"), *(file for package in packages for file in package.rglob("*.py"))]
            found |= {f"{PLUGINS}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in modules}
        named = {path for cell in plan.cells for part in (cell.data, _trace(cell.network)) for path in _paths(part)}
        for path in sorted(named):
            files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
            found |= {f"{DATA}/{file.as_posix()}": file.read_bytes() for file in files}
        return cls(found)

    def unpack_files(self, into: Path) -> None:
        """Write all of it below a folder."""
        for name, content in self.files.items():
            file = into / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def _trace(network: Any) -> Algorithm | None:
    return None if network is None else network.there


def _paths(part: Algorithm | None) -> Iterator[Path]:
    """What of the parameters of some algorithm is a path below where the command was started, with something there."""
    if part is None:
        return
    for value in (getattr(part, field.name) for field in part.fields()):
        if isinstance(value, str) and value:
            path = PurePath(value)
            with suppress(OSError, ValueError):
                if not path.is_absolute() and ".." not in path.parts and path.parts and Path(path).exists():
                    yield Path(path)


class RemoteWorker:
    """One worker. What it says is handed on as it comes.

    Args:
        start: what its process is told first (`fedguard.bench.running.worker`), with the folder of the plug-ins on the machine
            on which the command was started.
        timeout: seconds that a trial may take.
        luggage: what is unpacked here; None where this is the machine that the command was started on, and all is in its place.
    """

    def __init__(self, start: Mapping[str, Any], timeout: float | None, luggage: JobFiles | None) -> None:
        self._here = Path(tempfile.mkdtemp(prefix="fedguard-seat-"))
        if luggage is not None:
            luggage.unpack_files(self._here)
            (self._here / DATA).mkdir(exist_ok=True)
            (self._here / PLUGINS).mkdir(exist_ok=True)
            os.chdir(self._here / DATA)
            if start["folder"] is not None:
                start = {**start, "folder": str(self._here / PLUGINS)}
        self._pool = LocalPool(1, start, timeout)

    def ready(self) -> None:
        """Wait until the worker has loaded its libraries and the plug-ins.

        Raises:
            RuntimeError: it cannot.
        """
        try:
            while not self._pool.ready():
                self._pool.wait(0.5)
        except RuntimeError as error:
            raise RuntimeError(
                f"no worker starts on {socket.gethostname()}: {str(error).rsplit(' | ', 1)[-1]}"
            ) from None

    def trial(self, job: Job, clean_model: bytes | None) -> Iterator[dict[str, Any]]:
        """Run a trial, and hand on what is said of it.

        Args:
            clean_model: what the file holds in which the job has the model of the cell without attack.

        Yields:
            ``message``, ``ended`` and ``log`` as in `fedguard.bench.running.engines.WorkerMessage`; with the last of them the
            ``record`` under its seal, and ``files``: what the trial has left beside it, by name.
        """
        run = self._here / RUN
        shutil.rmtree(run, ignore_errors=True)
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
                record = to_text(message.pop("record"))
            over = message is None or record is not None
            files = {file.name: file.read_bytes() for file in artifacts.iterdir()} if over else {}
            yield {"message": message, "record": record, "ended": said.ended, "log": said.log, "files": files}

    def close(self) -> None:
        """End the worker at once, and leave nothing behind."""
        self._pool.close()
        shutil.rmtree(self._here, ignore_errors=True)


def store_artifacts(files: Mapping[str, bytes], folder: Path) -> None:
    """Store what a trial has left, under the names that it has given, none of which leads elsewhere."""
    for name, content in files.items():
        write_atomically(folder / "artifacts" / Path(name).name, content)


def clean_model_of(job: Job) -> bytes | None:
    """What the job's file of the clean model holds; None if there is none."""
    with suppress(OSError):
        return Path(job["clean_model"]).read_bytes()
    return None
