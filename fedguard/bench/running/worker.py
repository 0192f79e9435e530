"""The process in which trials run: JSON lines in, JSON lines out, one torch thread.

    in   {"cell": canonical form, "seed": 3, "controls": {...}, "clean_model": path, "model": path or null}
         first of all {"folder": path or null, "plugins": [...], "memory": bytes or null, "device": "cpu" or "cuda",
         "secret_noise": whether noise for privacy comes from the operating system,
         "timeout": seconds or null, after which it writes a traceback to its standard error}
    out  {"round": 7, "rounds": 30, "scores": [[6, 0.71], [7, 0.74]]}     now and then
         {"record": {...}, "log": text, "changed": [...]}         at the end of each trial; ``changed`` is what the trial
         altered that later ones in this process would find so

It is started as ``python -m fedguard.bench.running.worker``, so that a user's script needs no ``if __name__ == "__main__"``,
nothing is pickled, and a crash ends no other process. The worker ends when its input closes, even in the middle of a trial,
since no process is left to receive the record.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
import time
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
    sys.path += [one for one in start.get("paths", ()) if one not in sys.path]  # where who started this finds modules

    import torch

    torch.set_num_threads(1)
    from fedguard.bench.running.workbench import Workbench
    from fedguard.registry import load_registry

    bench = Workbench(start.get("device", "cpu"), start.get("memory"), start.get("secret_noise", False))
    known = load_registry().with_modules(start["plugins"], folder)
    import fedguard.bench.running.procedures  # noqa: F401  now, since a trial's time is limited

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
    """Run one trial, report its progress now and then, and return its last message."""
    from fedguard.bench.running.procedures import procedure
    from fedguard.config import build_cell
    from fedguard.config.schema import CellConfig

    cell = build_cell(CellConfig.model_validate(job["cell"]), known)
    spoken, unsaid = time.monotonic(), list[tuple[int, float]]()

    def progress(round: int, rounds: int, score: float | None) -> None:
        nonlocal spoken
        if score is not None:
            unsaid.append((round, score))
        if time.monotonic() - spoken > 0.2:
            spoken = time.monotonic()
            say({"round": round, "rounds": rounds, "scores": unsaid})
            unsaid.clear()

    return procedure(cell).trial(cell, job, bench, progress)


def _say(out: IO[str], message: dict[str, Any]) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main()
