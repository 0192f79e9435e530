"""The process in which trials run: JSON lines in, JSON lines out, one torch thread.

    in   {"cell": canonical form, "seed": 3, "corners": {...}, "clean_model": path, "model": path or null}
         first of all {"folder": path or null, "plugins": [...], "memory": bytes or null, "device": "cpu" or "cuda",
         "timeout": seconds or null, after which it writes to its standard error where it stands}
    out  {"round": 7, "rounds": 30, "accuracy": [[6, 0.71], [7, 0.74]]}     now and then
         {"record": {...}, "log": text, "changed": [...]}         at the end of each trial; ``changed`` is what the trial
         altered that later ones in this process would find so

It is started as ``python -m fedguard.bench.running.worker``, so that a user's script needs no ``if __name__ == "__main__"``,
nothing is pickled, and a crash takes nobody along. When its input closes it ends, in the middle of a trial too: whoever was
to hear of it is gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.bench.running.workbench import Workbench
    from fedguard.registry import Registry


def main() -> None:
    """Serve trials until standard input closes."""
    # What algorithms print must not get between the lines of the protocol.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    start = json.loads(sys.stdin.readline())
    folder = None if start["folder"] is None else Path(start["folder"])
    if folder is not None:  # what modules of the user's own import later stands there too
        sys.path.append(str(folder))

    import torch

    torch.set_num_threads(1)
    from fedguard.bench.running.workbench import Workbench
    from fedguard.registry import installed

    bench = Workbench(start.get("device", "cpu"), start.get("memory"))
    known = installed().with_modules(start["plugins"], folder)
    import fedguard.bench.records.pictures
    import fedguard.bench.running.trial  # noqa: F401  now, since a trial's time is limited

    _say(out, {"ready": True})
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        job = json.loads(jobs.get())
        if start.get("timeout"):
            faulthandler.dump_traceback_later(start["timeout"], file=2)
        answer = serve(job, known, bench, partial(_say, out))
        faulthandler.cancel_dump_traceback_later()
        _say(out, answer)


def _listen(jobs: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def serve(
    job: Mapping[str, Any], known: Registry, bench: Workbench, say: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Run one trial, tell now and then how far it is, and return what is said at its end."""
    import numpy as np
    import torch

    from fedguard.bench.records import pictures
    from fedguard.bench.records.record import from_text, to_text
    from fedguard.bench.records.store import RunFolder, write_atomically
    from fedguard.bench.running.apps import run_app
    from fedguard.bench.running.blame import in_words
    from fedguard.bench.running.shared_state import changed, shared_state
    from fedguard.bench.running.trial import not_run, run_trial
    from fedguard.config import Cell
    from fedguard.config.schema import CellConfig
    from fedguard.contracts import Data, Examples, Reconstruction
    from fedguard.tasks.data import loaded

    cell = Cell.build(CellConfig.model_validate(job["cell"]), known)
    spoken, unsaid = time.monotonic(), list[tuple[int, float]]()

    def progress(round: int, rounds: int, accuracy: float | None) -> None:
        nonlocal spoken
        if accuracy is not None:
            unsaid.append((round, accuracy))
        if time.monotonic() - spoken > 0.2:
            spoken = time.monotonic()
            say({"round": round, "rounds": rounds, "accuracy": unsaid})
            unsaid.clear()

    def clean_model() -> torch.Tensor | None:
        path = Path(job["clean_model"])
        with contextlib.suppress(OSError, ValueError, EOFError):  # missing or damaged: it is trained again
            found = np.load(path, allow_pickle=False) if path.is_file() else None
            if isinstance(found, np.ndarray) and found.dtype == np.float32 and found.ndim == 1:
                return torch.from_numpy(found)
        return None

    def album(name: str, claim: Reconstruction, truth: Examples) -> None:
        folder = RunFolder(Path(job["folder"]))
        assert isinstance(cell.data, Data)  # nothing is rebuilt of actors
        pictures.save(folder, cell.id, job["seed"], name, claim, truth, loaded(cell.data).value_range)

    if cell.config.app is not None:  # it has a process of its own: nothing is changed here
        record, log = run_app(cell, job["seed"], job["corners"], bench.apps)
        if record["status"] == "ok" and log:  # what its processes said, kept where the log of a failed trial would be
            write_atomically(RunFolder(Path(job["folder"])).log_path(cell.id, job["seed"]), log.encode())
            log = ""
        return {"record": record, "log": log or None, "changed": []}
    before = shared_state()
    try:
        record, model = run_trial(
            cell, job["seed"], job["corners"], bench, progress=progress, clean_model=clean_model, album=album
        )
        from_text(to_text(record))  # an attack's notes may hold anything: what cannot be read back has failed
        if job["model"] is not None:
            _save_atomically(Path(job["model"]), model.numpy())
        answer: dict[str, Any] = {"record": record, "log": None}
    except Exception as error:
        answer = {
            "record": not_run(cell, job["seed"], "failed", in_words(error), bench.compute.name),
            "log": traceback.format_exc(),
        }
    return {**answer, "changed": changed(before, shared_state())}


def _save_atomically(path: Path, array: Any) -> None:
    import numpy as np

    temporary = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    np.save(temporary, array, allow_pickle=False)
    temporary.replace(path)


def _say(out: IO[str], message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
