"""Workers in a Ray cluster: one actor per core, each a `RemoteWorker` (`fedguard.bench.running.engines.remote_worker`).

Actors return JSON and the files of a trial. Only the machine that runs the command writes records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedguard.arguments import of_kind
from fedguard.bench.records.record import from_text
from fedguard.bench.records.schema import Record
from fedguard.bench.running.code import own_code
from fedguard.bench.running.engines import Job, WorkerMessage
from fedguard.bench.running.engines.local import default_jobs
from fedguard.bench.running.engines.remote_worker import JobFiles, RemoteWorker, clean_model_of, store_artifacts
from fedguard.config import Plan
from fedguard.errors import ConfigError, MissingExtra, brief, oneline

#: Losses of its machine after which a trial has failed: a trial that ends every machine is the likely cause. Also losses in a
#: row after which a worker that was never ready is given up.
LOSSES = 3
#: Default port of a Ray cluster.
PORT = 6379
#: Seconds in which a cluster has to answer, and in which its workers have to close.
PATIENCE = 10.0
#: Bytes of a local cluster's object store: records and small models go through it. Ray would take a third of the memory.
STORE = 256 << 20


@dataclass(frozen=True)
class Ray:
    """A Ray cluster in which trials run.

    Args:
        address: ``auto`` for the cluster that this machine is part of, or ``HOST`` or ``HOST:PORT`` of its head; None for
            one on this machine alone, which ends with the run.
    """

    address: str | None = None

    def __post_init__(self) -> None:
        of_kind(self.address, "address", (str, type(None)), "auto, HOST or HOST:PORT, or None")

    @contextlib.contextmanager
    def connect(self, jobs: int | None) -> Iterator[Cluster]:
        """Connect to the cluster for the duration of the context; if the process was connected before, it stays connected.

        Raises:
            MissingExtra: Ray is not installed.
            ConfigError: there is no cluster at the address, or it runs another version.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics to Ray's makers
        # Ray would otherwise hide the GPUs from actors that ask for none, by CUDA_VISIBLE_DEVICES
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise MissingExtra("--engine ray", "ray", "ray") from None
        there = ray.is_initialized()
        if not there:
            self._connect(ray, jobs)
        try:
            yield Cluster(ray, local=self.address is None and not there)
        finally:
            if not there:
                ray.shutdown()

    def _connect(self, ray: Any, jobs: int | None) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        try:
            with warnings.catch_warnings(action="ignore"):
                if self.address is None:
                    logging.getLogger("ray").setLevel(logging.ERROR)  # it has a token of its own, and says so
                    ray.init(
                        address="local",
                        num_cpus=jobs or default_jobs(),
                        include_dashboard=False,
                        object_store_memory=STORE,
                        **quiet,
                    )
                else:
                    ray.init(address=_reachable(self.address), **quiet)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"--address {self.address or 'local'}: {_why(error, self.address)}") from None


def _reachable(address: str) -> str:
    """``HOST:PORT`` if something answers there; Ray itself would wait for minutes.

    Raises:
        ConfigError: nothing answers, or the address is malformed.
    """
    if address == "auto":
        return address
    if "://" in address:
        raise ConfigError(
            f"--address: expected auto, HOST or HOST:PORT of a cluster that this machine is part of; got {brief(address)}. "
            "Join it: `ray start --address=HOST:6379 --num-cpus=0`, and set --address auto."
        )
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(PORT))
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--address: expected auto, HOST or HOST:PORT; got {brief(address)}.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ConfigError(
            f"--address: expected a Ray cluster at {host}:{port}; got no answer ({error.strerror or error}). Start one there: "
            f"`ray start --head --port={port}`."
        ) from None
    return f"{host}:{port}"


def _why(error: Exception, address: str | None) -> str:
    """Why Ray did not start, in one line."""
    said = oneline(error)
    if "ersion mismatch" in said:
        return f"the cluster runs another version of Ray or Python than this process. Install the same: {said}"
    if isinstance(error, ConnectionError) and address not in (None, "auto"):
        return (
            f"expected a Ray cluster that lets this process in; something answers there, but: {said}. If it asks for a token, "
            "as new ones do, set RAY_AUTH_MODE=token, with the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN."
        )
    if isinstance(error, ConnectionError):
        return f"expected a Ray cluster; got none: {said}. Start one: `ray start --head`; or leave out --address."
    return f"Ray did not start: {said}"


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is part of.

    Args:
        ray: the package.
        local: whether it is on this machine alone, so that no files need to travel.
    """

    ray: Any
    local: bool

    @property
    def cores(self) -> int:
        """Number of cores of all machines."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def pool(self, jobs: int, start: Mapping[str, Any], timeout: float | None, plan: Plan) -> RayPool:
        """A pool of ``jobs`` workers with the files that the trials of a plan need.

        Raises:
            ConfigError: no machine has the resources for one worker.
        """
        needed = {"CPU": 1.0}
        if start["memory"] is not None:
            needed["memory"] = float(start["memory"])
        if start["device"] == "cuda":
            needed["GPU"] = 1.0
        # Per machine, not in total: Ray would wait forever for an actor that fits on no single one
        machines = [one["Resources"] for one in self.ray.nodes() if one["Alive"]]
        if not any(all(one.get(what, 0) >= much for what, much in needed.items()) for one in machines):
            wanted = ", ".join(f"{much:g} {what}" for what, much in needed.items())
            raise ConfigError(
                f"--engine ray: expected a machine with {wanted} for a worker; none of the {len(machines)} of the cluster has "
                "as much. Lower --memory, raise --jobs, or add a machine."
            )
        parcel = None if self.local else self.ray.put(JobFiles.of(plan))
        seat = self.ray.remote(
            num_cpus=1,
            num_gpus=needed.get("GPU", 0),
            memory=start["memory"] or 0,
            max_restarts=0,  # the pool itself repeats jobs: it counts the losses and reports them
            max_task_retries=0,
            max_concurrency=2,  # so that `close` is served during a trial
        )(RemoteWorker)
        return RayPool(self.ray, lambda: seat.remote(dict(start), timeout, parcel), jobs)


@dataclass
class _WorkerHandle:
    """The pool's view of one remote worker.

    Attributes:
        actor: the actor; Ray places it as soon as a machine has room.
        stream: reference to its next message: that it is ready, or a message of its trial; None if it is idle.
        ready: whether it runs on a machine and has loaded its libraries.
        job: its current job.
        losses: number of predecessors in a row that were lost before they were ready.
    """

    actor: Any
    stream: Any = None
    ready: bool = False
    job: Job | None = None
    losses: int = 0


@dataclass
class RayPool:
    """``jobs`` remote workers; each starts once a machine has room for it.

    If the machine of a worker is lost, the pool makes a new worker, on any machine with room, and its job runs again.

    Args:
        ray: the package.
        seated: makes an actor.
        jobs: number of workers.
    """

    ray: Any
    seated: Any
    jobs: int
    _seats: list[_WorkerHandle] = field(default_factory=list)
    _again: deque[Job] = field(default_factory=deque)
    _losses: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._seats = [self._seat() for _ in range(self.jobs)]

    def free(self) -> int:
        return max(0, len(self._idle()) - len(self._again))  # jobs to be repeated go first

    def submit(self, job: Job) -> None:
        self._give(self._idle()[0], job)

    def wait(self, timeout: float) -> WorkerMessage | None:
        for seat in self._idle()[: len(self._again)]:
            self._give(seat, self._again.popleft())
        streams = [seat.stream for seat in self._seats if seat.stream is not None]
        if not streams:  # all are idle
            return None
        done, _ = self.ray.wait(streams, num_returns=1, timeout=timeout)
        if not done:
            return None
        seat = next(one for one in self._seats if one.stream is done[0])
        try:
            return self._take(seat)
        except self.ray.exceptions.RayTaskError as error:
            why = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
            raise ConfigError(
                f"--engine ray: {oneline(why)}. Install there what is installed here, and what the plug-ins import."
            ) from None
        except self.ray.exceptions.RayError as error:
            return self._recover_worker(seat, error)

    def close(self) -> None:
        # Asked first: `ray.kill` alone would leave their temporary folders and what plug-ins have started
        closing = [seat.actor.close.remote() for seat in self._seats if seat.ready]
        with contextlib.suppress(Exception):  # the cluster may be gone
            self.ray.wait(closing, num_returns=len(closing), timeout=PATIENCE)
        for seat in self._seats:
            with contextlib.suppress(Exception):
                self.ray.kill(seat.actor)

    def _seat(self, losses: int = 0) -> _WorkerHandle:
        actor = self.seated()
        return _WorkerHandle(actor, actor.ready.remote(), losses=losses)

    def _idle(self) -> list[_WorkerHandle]:
        return [seat for seat in self._seats if seat.ready and seat.job is None]

    def _give(self, seat: _WorkerHandle, job: Job) -> None:
        seat.job = job
        seat.stream = seat.actor.trial.options(num_returns="streaming").remote(dict(job), clean_model_of(job))

    def _take(self, seat: _WorkerHandle) -> WorkerMessage | None:
        """The message of a worker that has one."""
        if not seat.ready:
            self.ray.get(seat.stream)
            seat.ready, seat.stream = True, None
            return None
        job = seat.job
        assert job is not None
        said = self.ray.get(next(seat.stream))
        message, text = said["message"], said["record"]
        if message is not None and text is None:
            return WorkerMessage(job, message)
        seat.job = seat.stream = None
        if message is not None:
            try:  # before its files are stored, which belong to this record only if it is the job's own
                message = {**message, "record": verify_record(text, job)}
            except ValueError as error:
                return self._repeat(job, f"its record was altered on its way ({error})")
        store_artifacts(said["files"], Path(job["folder"]))
        return WorkerMessage(job, message, said["ended"], said["log"])

    def _recover_worker(self, seat: _WorkerHandle, error: Exception) -> WorkerMessage | None:
        """Replace a worker after the loss of its machine or process, and run its trial again.

        Raises:
            ConfigError: the worker and its predecessors were lost before they were ready.
        """
        # Counted in a row only: machines may come and go in a long run, but a worker that never starts would loop forever
        job, losses = seat.job, 0 if seat.ready else seat.losses + 1
        if losses == LOSSES:
            raise ConfigError(
                f"--engine ray: no worker starts in the cluster, tried {LOSSES} times. If it asks for no token and this "
                f"process has one (~/.ray/auth_token), set RAY_AUTH_MODE=disabled. Ray says: {oneline(error)}"
            )
        self._seats[self._seats.index(seat)] = self._seat(losses)
        with contextlib.suppress(Exception):
            self.ray.kill(seat.actor)
        why = f"its machine or its Ray actor was lost ({type(error).__name__})"
        return None if job is None else self._repeat(job, why, oneline(error))

    def _repeat(self, job: Job, why: str, log: str = "") -> WorkerMessage:
        """Run a trial again if its record did not arrive, up to `LOSSES` attempts in all."""
        trial = (job["id"], job["seed"])
        self._losses[trial] += 1
        if self._losses[trial] == LOSSES:
            return WorkerMessage(job, None, f"{why}, and so it went {LOSSES} times", log)
        self._again.append(job)
        return WorkerMessage(job, {"lost": f"{why}; the trial runs again"})


def verify_record(text: bytes, job: Job) -> Record:
    """The sealed record, checked to belong to the job.

    Raises:
        ValueError: it was altered, or belongs to another trial.
        ConfigError: other code of FedGuard made it.
    """
    record = from_text(text)
    if (record["seed"], record["config"]) != (job["seed"], job["cell"]):
        raise ValueError(f"it belongs to another trial: {record['label']}, seed {record['seed']}")
    # Two versions in one run would be compared as if only their settings differed
    made = record["environment"]["code"]["fedguard"]
    if made != own_code():
        raise ConfigError(
            f"--engine ray: a machine of the cluster has other code of FedGuard ({made}) than this one ({own_code()}). "
            "Install the same on each."
        )
    return record
