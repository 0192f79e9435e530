"""Executes a plan with its own workers, and opens the run."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedguard.arguments import at_least, is_real, truth
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.budget import parse_memory
from fedguard.bench.running.engines import WorkerPool
from fedguard.bench.running.engines.local import LocalPool, default_jobs
from fedguard.bench.running.manifest import uses_secret_noise
from fedguard.bench.running.procedures import procedure
from fedguard.bench.running.progress import Listener, choose_listener
from fedguard.bench.running.runner import Runner
from fedguard.config import Plan
from fedguard.errors import ConfigError, brief
from fedguard.tasks.compute import usable

if TYPE_CHECKING:
    from fedguard.bench.running.engines.ray import Ray


def check_workers(jobs: int | None, listener: Listener | None, engine: Ray | None) -> Listener:
    """The listener of a run, once it, ``jobs`` and ``engine`` are known to be valid: see `execute`."""
    if jobs is not None:
        at_least(1, jobs, "jobs")
    if engine is not None and not hasattr(engine, "connect"):
        raise ConfigError(f"engine: expected a cluster such as fedguard.Ray('auto'), or None; got {brief(engine)}.")
    return choose_listener(listener)


def execute(
    plan: Plan,
    folder: RunFolder,
    *,
    jobs: int | None = None,
    listener: Listener | None = None,
    retry_failed: bool = False,
    fresh: bool = False,
    same_code: bool = False,
    memory: int | str | None = None,
    device: str = "cpu",
    timeout: float | None = None,
    limit: int | None = None,
    secret_noise: bool = False,
    engine: Ray | None = None,
) -> Run:
    """Run the missing trials of a plan, and open the result.

    Args:
        jobs: worker processes, one torch thread each; by default one per core of this machine, or of the cluster.
        listener: receives the progress; by default there are bars on a terminal or in a notebook, and nothing elsewhere.
        retry_failed, fresh, same_code: as for `Runner`.
        memory: of all workers together, in bytes or as "4G"; None for no limit. A trial that needs more fails and says so.
        device: where the clients' training and the evaluation compute, ``cpu`` or ``cuda``.
        timeout: seconds that a trial may take; its worker is then ended, and the trial has failed. None for no limit.
        limit: how many of the trials that are missing to run, the first of the plan; None for all.
        secret_noise: draw noise for privacy from the operating system. A run that began with secret noise keeps it unless it is
            made ``fresh``; in a run that began without, trials with noise are run again.
        engine: the Ray cluster of the workers; None for processes of this machine.

    Raises:
        ConfigError: jobs or limit below 1, a timeout of 0 or less, an invalid memory, a missing device or Flower, a cluster
            that does not answer, or nothing in the suite may run.
        MissingExtra: Ray is not installed.
        StoreError: the store cannot be written.
    """
    listener = check_workers(jobs, listener, engine)
    if limit is not None:
        at_least(1, limit, "limit")
    seconds = is_real(timeout)
    if timeout is not None and not (seconds and 0 < timeout < 1e9):
        raise ConfigError(f"timeout: expected more than 0 seconds and less than 1e9; got {brief(timeout)}.")
    for name, chosen in (
        ("retry_failed", retry_failed),
        ("fresh", fresh),
        ("same_code", same_code),
        ("secret_noise", secret_noise),
    ):
        truth(chosen, name)
    for how in {procedure(cell): None for cell in plan.cells}:
        how.require([cell for cell in plan.cells if procedure(cell) is how], cluster=engine is not None)
    if not secret_noise and not fresh and uses_secret_noise(folder):
        secret_noise = True
        listener.note("This run was begun with secret noise, and goes on so; --fresh begins it anew.")
    runner = Runner(
        plan,
        folder,
        listener,
        retry_failed,
        fresh,
        same_code,
        timeout=timeout,
        limit=limit,
        secret_noise=secret_noise,
    )
    with contextlib.nullcontext() if engine is None else engine.connect(jobs) as cluster:
        workers = jobs or (default_jobs() if cluster is None else max(1, cluster.cores))
        processes = min(workers, len(plan.cells) * len(plan.suite.seeds))
        start = {
            "plugins": list(plan.suite.plugins),
            "folder": None if plan.known.folder is None else str(plan.known.folder),
            # of this machine; another one's folders are its own
            "paths": [] if cluster else [str(Path(one).resolve()) for one in sys.path if Path(one).is_dir()],
            "memory": None if memory is None else parse_memory(memory) // processes,
            "device": usable(device, here=cluster is None),
            "secret_noise": secret_noise,
        }

        def pool() -> WorkerPool:
            return (
                LocalPool(processes, start, timeout)
                if cluster is None
                else cluster.pool(processes, start, timeout, plan)
            )

        runner.run(pool, workers)
    return Run.open(folder.path, folder.path.parent)
