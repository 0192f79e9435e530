"""Trials of an app, each in a process of its own, with JSON lines as input and output. `python -m fedguard.bridges.trial`

    in   {"app": folder, "attack": "ipm(tau=5)", ..., "engine": "inline"}: `fedguard.bridges.jobs.TrialRequest`
    out  {"status": "ok", "found": {...}, "log": text} or {"status": "refused", "reason": text, ...}; "mistake" if something is
         wrong with the app or the request, "failed" if the app raised

This process loads the libraries once, and is copied (`os.fork`) for each trial, so an app leaves nothing behind for the next
one. It leads a group of processes, and all of them end at once when its input closes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from fedguard.bench.running.environment import peak_memory
from fedguard.bridges.jobs import ReadApp, TrialRequest
from fedguard.bridges.observer import evaluate_inference
from fedguard.bridges.seen import TrainingObservations
from fedguard.errors import FedGuardError, NotAllowed

#: Characters of a trial's output that are returned, from its end.
LONGEST = 20_000


class AppBridge(Protocol):
    """What a framework's module ``running`` has: `fedguard.bridges.flower.running`, `fedguard.bridges.nvflare.running`.

    Attributes:
        ENGINES: where a trial may run.
    """

    ENGINES: Mapping[str, Callable[[TrialRequest], dict[str, Any]]]

    def read(self, asked: TrialRequest) -> ReadApp:
        """The app with its run's configuration."""

    def rehearse(self, asked: TrialRequest) -> None:
        """Raise a `FedGuardError` if an app cannot be loaded, or its engine is not installed."""


def load_bridge(name: str) -> AppBridge:
    """The bridge to the framework of that name, imported when it is first asked for."""
    return cast(AppBridge, importlib.import_module(f"fedguard.bridges.{name}.running"))


def run_trial(asked: TrialRequest) -> dict[str, Any]:
    """Run an app once, on the requested engine, and return the metrics of its model.

    Returns:
        what the engine returns (such as `fedguard.bridges.flower.serving.serve_app`), with seconds, cpu_seconds (of this
        process and those it started) and memory.

    Raises:
        ConfigError: there is no such app, it measures no suitable metric, or the engine is not installed.
        NotAllowed: attack or rule cannot be used there.
    """
    # One thread on every engine: sums in another order would change the last bits of a result
    torch.set_num_threads(1)
    began, spent = time.perf_counter(), _cpu()
    told = _run(asked)
    return {**told, "seconds": time.perf_counter() - began, "cpu_seconds": _cpu() - spent, "memory": peak_memory()}


def _run(asked: TrialRequest) -> dict[str, Any]:
    """Run the app, then the observer's attack, which runs in this process after the training."""
    observer, whose = asked.observer, load_bridge(asked.framework)
    if observer is None:
        return whose.ENGINES[asked.engine](asked)
    with tempfile.TemporaryDirectory(prefix="fedguard-seen-") as folder:
        kept = Path(folder) / "seen.npz"
        told = whose.ENGINES[asked.engine](replace(asked, kept=str(kept)))
        if told["raised"]:
            return told
        try:
            seen = TrainingObservations.load(kept)
            return {**told, **evaluate_inference(observer, whose.read(asked), asked.nodes, asked.seed, seen)}
        except FedGuardError:
            raise
        except Exception as error:  # whatever an attack raises on what it was given
            traceback.print_exc()
            raise FedGuardError(f"{observer.attack} raised: {type(error).__name__}: {error}") from error


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, including all failures."""
    rehearsal = asked.pop("rehearsal", False)
    try:
        if rehearsal:
            request = TrialRequest(**asked)
            load_bridge(request.framework).rehearse(request)
            return {"status": "ok", "found": None}
        found = run_trial(TrialRequest(**asked))
    except NotAllowed as error:
        return {"status": "refused", "reason": str(error)}
    except FedGuardError as error:
        return {"status": "mistake", "reason": str(error)}
    except Exception as error:  # whatever a user's app raises
        traceback.print_exc()
        return {"status": "failed", "reason": f"the app raised: {type(error).__name__}: {error}"}
    if found["raised"]:
        sys.stderr.write("\n".join(found["raised"]))
        return {"status": "failed", "reason": f"the app raised: {found['raised'][0].strip().splitlines()[-1]}"}
    return {"status": "ok", "found": found}


def main() -> None:
    """Serve trials, one after another, until standard input closes."""
    # The protocol keeps the true standard output; whatever prints from here on goes to standard error instead
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    while line := sys.stdin.buffer.raw.readline():  # type: ignore[union-attr]  # unbuffered, for select
        asked = json.loads(line)
        with contextlib.suppress(ImportError):  # loaded once, before the copy; in the copy what fails is told
            load_bridge(asked.get("framework", "flower"))
        out.write(json.dumps(_apart(asked)) + "\n")
    os.killpg(0, signal.SIGKILL)


def _apart(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a trial in a copy of this process; all processes that it starts end with the group of this one."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
        # The child alone holds the writing end: `alive` becomes readable when it ends, however it does
        alive, held = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(alive)
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            told.write(json.dumps(answer(asked)).encode())
            told.flush()
            os._exit(0)
        os.close(held)
        if sys.stdin.buffer in select.select([sys.stdin.buffer, alive], [], [])[0]:
            os.killpg(0, signal.SIGKILL)  # nobody waits for it any more
        os.close(alive)
        _, status = os.waitpid(child, 0)
        told.seek(0)
        said.seek(0)
        log = said.read().decode(errors="replace")[-LONGEST:]
        if text := told.read():
            return {**json.loads(text), "log": log}
    code = os.waitstatus_to_exitcode(status)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {"status": "failed", "reason": f"the app ended its process: {how}", "log": log}


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
