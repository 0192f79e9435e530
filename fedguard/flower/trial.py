"""Trials of an app, each in a process of its own, with JSON lines as input and output. `python -m fedguard.flower.trial`

    in   {"app": folder, "attack": "ipm(tau=5)", ..., "engine": "inline"}: `fedguard.flower.serving.TrialRequest`
    out  {"status": "ok", "found": {...}, "log": text} or {"status": "refused", "reason": text, ...}; "mistake" if something is
         wrong with the app or the request, "failed" if the app raised

This process loads the libraries once, and is copied (`os.fork`) for each trial, so an app leaves nothing behind for the next
one. It leads a group of processes, and all of them end at once when its input closes.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedguard.bench.running.environment import peak_memory
from fedguard.errors import FedGuardError, NotAllowed
from fedguard.flower.deployment import require_deployable, run_deployed
from fedguard.flower.inline import run_inline
from fedguard.flower.observer import check, evaluate_inference
from fedguard.flower.seen import TrainingObservations
from fedguard.flower.serving import TrialRequest, serve_app
from fedguard.flower.simulation import require_ray, run_simulated

#: Characters of a trial's output that are returned, from its end.
LONGEST = 20_000


def rehearse(asked: TrialRequest) -> None:
    """Check that an app can be imported, and that its engine is installed.

    Raises:
        ConfigError: the app cannot be imported, or the engine is not installed.
    """
    read = asked.read
    read.load()
    if asked.observer is not None:
        check(asked.observer, read, asked.nodes, asked.seed)
    if asked.engine == "deployment":
        require_deployable(asked.read)
    if asked.engine == "simulation":
        require_ray()


def run_trial(asked: TrialRequest) -> dict[str, Any]:
    """Run an app once, on the requested engine, and return the metrics of its model; see `fedguard.flower.serving.serve_app`.

    Returns:
        the result of `serve_app`, with seconds, cpu_seconds (of this process and those it started) and memory.

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
    observer = asked.observer
    if observer is None:
        return ENGINES[asked.engine](asked)
    with tempfile.TemporaryDirectory(prefix="fedguard-flower-") as folder:
        kept = Path(folder) / "seen.npz"
        told = ENGINES[asked.engine](replace(asked, kept=str(kept)))
        if told["raised"]:
            return told
        try:
            return {
                **told,
                **evaluate_inference(observer, asked.read, asked.nodes, asked.seed, TrainingObservations.load(kept)),
            }
        except FedGuardError:
            raise
        except Exception as error:  # whatever an attack raises on what it was given
            traceback.print_exc()
            raise FedGuardError(f"{observer.attack} raised: {type(error).__name__}: {error}") from error


def _inline(asked: TrialRequest) -> dict[str, Any]:
    read, told = asked.read, list[dict[str, Any]]()
    grid = run_inline(
        lambda grid, context: told.append(serve_app(asked, read, grid, context, grid.partitions)),
        read.client_app(),
        nodes=asked.nodes,
        config=read.config,
        seed=asked.seed,
    )
    return {**told[0], "raised": grid.raised}


#: Where a trial may run.
ENGINES: dict[str, Callable[[TrialRequest], dict[str, Any]]] = {
    "inline": _inline,
    "simulation": run_simulated,
    "deployment": run_deployed,
}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, including all failures."""
    rehearsal = asked.pop("rehearsal", False)
    try:
        if rehearsal:
            rehearse(TrialRequest(**asked))
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
        out.write(json.dumps(_apart(json.loads(line))) + "\n")
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
