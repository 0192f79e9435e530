"""From a plan to a run: a runner with workers of its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console

from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.budget import parsed
from fedguard.bench.running.engines import Engine
from fedguard.bench.running.engines.local import LocalPool, default_jobs
from fedguard.bench.running.procedures import procedure
from fedguard.bench.running.progress import Bars, Listener
from fedguard.bench.running.runner import Runner
from fedguard.config import Plan
from fedguard.errors import ConfigError
from fedguard.tasks.compute import usable

if TYPE_CHECKING:
    from fedguard.bench.running.engines.ray import Ray


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
    engine: Ray | None = None,
) -> Run:
    """Run what is missing of a plan, and open the result.

    Args:
        jobs: worker processes, one torch thread each; by default one per core of this machine, or of the cluster.
        listener: told of the progress; by default there are bars on a terminal or in a notebook, and nothing elsewhere.
        retry_failed, fresh, same_code: as for `Runner`.
        memory: of all workers together, in bytes or as "4G"; None for no limit. A trial that needs more fails and says so.
        device: where the clients' training and the evaluation compute, ``cpu`` or ``cuda``.
        timeout: seconds that a trial may take; its worker is then ended, and the trial has failed. None for no limit.
        limit: how many of the trials that are missing to run, the first of the plan; None for all.
        engine: a Ray cluster, where the workers are; None for processes of this machine.

    Raises:
        ConfigError: jobs or limit below 1, a timeout of 0 or less, a memory that is none, a device or a Flower that is not
            there, a cluster that does not answer, or nothing in the suite may run.
        MissingExtra: Ray is not installed.
        StoreError: the store cannot be written.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs: expected at least 1; got {jobs}.")
    if timeout is not None and not 0 < timeout < 1e9:
        raise ConfigError(f"timeout: expected more than 0 seconds; got {timeout}.")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit: expected at least 1; got {limit}.")
    for how in {procedure(cell): None for cell in plan.cells}:
        how.require(cluster=engine is not None)
    if listener is None:
        console = Console(stderr=True)
        listener = Bars(console) if console.is_terminal or console.is_jupyter else Listener()
    runner = Runner(plan, folder, listener, retry_failed, fresh, same_code, timeout=timeout, limit=limit)
    with contextlib.nullcontext() if engine is None else engine.connected(jobs) as cluster:
        workers = jobs or (default_jobs() if cluster is None else max(1, cluster.cores))
        processes = min(workers, len(plan.cells) * len(plan.suite.seeds))
        start = {
            "plugins": list(plan.suite.plugins),
            "folder": None if plan.known.folder is None else str(plan.known.folder),
            "memory": None if memory is None else parsed(memory) // processes,
            "device": usable(device, here=cluster is None),
        }

        def pool() -> Engine:
            return (
                LocalPool(processes, start, timeout)
                if cluster is None
                else cluster.pool(processes, start, timeout, plan)
            )

        runner.run(pool, workers)
    return Run.open(folder.path, folder.path.parent)
