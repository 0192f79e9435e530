"""Shared state of the trials of one process: device, memory limit, and cached tasks and references."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from fedguard.bench.running.apps import Apps
from fedguard.bench.running.budget import within
from fedguard.bench.running.environment import resident_memory
from fedguard.config import PlannedCell
from fedguard.contracts import Data, Environment, Model, Partition, Setup
from fedguard.contracts.participation import sites_named
from fedguard.contracts.statistics import Normalization
from fedguard.metrics.dissimilarity import dissimilarity
from fedguard.rng import Rng, global_generators
from fedguard.robustness.weight import WeightBreakdown, breakdown_in_weight
from fedguard.tasks.classification import Classification
from fedguard.tasks.compute import Compute, computing_in
from fedguard.tasks.first_model import read_first_model
from fedguard.tasks.playing import EnvironmentTask

Kept = TypeVar("Kept")

#: Dealt tasks that are kept for the next cells, which mostly share one; under a limit of memory only one is.
TASKS = 4

#: The number of train and of test examples that are drawn from the data; None for all.
_Subset = tuple[int | None, int | None]
#: All on which a dealt task depends: data, model, partition, number of clients, random stream, root examples, who holds
#: copies of others' examples, the share of the examples that is everybody's, their number, the type, the first model, and
#: by what layers normalize that normalize over batches.
_Key = tuple[
    Data | Environment,
    Model,
    Partition,
    int,
    Rng,
    int,
    frozenset[int],
    float,
    _Subset,
    str,
    str | None,
    Normalization,
]


class Workbench:
    """The shared state of a process that runs trials.

    Args:
        device: where the training and the evaluation compute, ``cpu`` or ``cuda``.
        memory: bytes that the process may hold, see `fedguard.bench.running.budget`; None for no limit.
        secret_noise: whether noise for privacy comes from the operating system.
    """

    def __init__(self, device: str = "cpu", memory: int | None = None, secret_noise: bool = False) -> None:
        self.compute = Compute(device)
        self.memory = memory
        self.secret_noise = secret_noise
        self.apps = Apps()
        self._tasks: dict[_Key, Classification | EnvironmentTask] = {}
        self._held = 0
        self._dissimilarity: dict[tuple[_Key, int], dict[str, float | int]] = {}
        self._finals: dict[tuple[str, int], float] = {}
        self._by_weight: dict[tuple[str, int, tuple[int, ...]], WeightBreakdown] = {}

    def task(self, cell: PlannedCell, seed: int) -> Classification | EnvironmentTask:
        """The task of a cell, dealt out, or with its actors.

        Raises:
            ConfigError: data, partition, model and number of clients are incompatible.
        """
        return self._task(_key(cell, seed))

    def dissimilarity(self, cell: PlannedCell, seed: int) -> dict[str, float | int] | None:
        """Dissimilarity of the clients, see `fedguard.metrics.dissimilarity`; None for actors, which have no examples."""
        if isinstance(cell.data, Environment):
            return None
        key, floats = _key(cell, seed), self.compute.floats

        def measure_dissimilarity() -> dict[str, float | int]:
            with global_generators(key[4].child("dissimilarity")):
                return dissimilarity(self.task(cell, seed), key[4].child("dissimilarity"), floats)

        return _fetch_or_make(self._dissimilarity, (key, floats), TASKS, measure_dissimilarity)

    def limit_memory(self, cell: PlannedCell, seed: int, setup: Setup) -> Setup:
        """The set-up within the limit of memory, if there is one.

        Raises:
            ConfigError: the training needs more.
        """
        if self.memory is None:
            return setup
        self.task(cell, seed)  # so that no other is held
        engines, updates = within(setup, self.memory, self._held)
        self.compute.memory = engines
        return dataclasses.replace(setup, memory=updates)

    def final(self, cell: PlannedCell, seed: int, train: Callable[[], float]) -> float:
        """The final accuracy of a reference training, from ``train``; shared by all trials of the process."""
        return _fetch_or_make(self._finals, (cell.id, seed), None, train)

    def weight_breakdown(self, cell: PlannedCell, sizes: Sequence[int]) -> WeightBreakdown:
        """What sites of these sizes can do to the cell's aggregate; the same for all trials with this rule."""
        key = (str(cell.pipeline), cell.assumed_rows, tuple(sizes))
        return _fetch_or_make(self._by_weight, key, None, lambda: breakdown_in_weight(cell.pipeline, sizes, key[1]))

    def _task(self, key: _Key) -> Classification | EnvironmentTask:
        data, model, partition, clients, rng, root, copying, shared, subset, dtype, first, how = key

        def deal_task() -> Classification | EnvironmentTask:
            # Generators, since it is kept for trials of other cells; float32, so that the draws are those of any dtype
            with global_generators(rng.child("task")), computing_in("float32"):
                task = create_task()
                return task if first is None else dataclasses.replace(task, first=read_first_model(first, task.module))

        def create_task() -> Classification | EnvironmentTask:
            if isinstance(data, Environment):
                return EnvironmentTask.build_task(data, model, clients, rng.child("episodes"), self.compute)
            split = rng.child("partition")
            task = Classification.deal(
                data, model, partition, clients, split, root, copying, self.compute, shared, subset, how
            )
            task = task if dtype == "float32" else task.in_dtype(dtype)
            self._held = resident_memory() if self.memory is not None else 0
            return task

        return _fetch_or_make(self._tasks, key, TASKS if self.memory is None else 1, deal_task)


def malicious_clients(cell: PlannedCell, seed: int) -> frozenset[int]:
    """The malicious clients: those that the suite names, or drawn so that a larger set includes each smaller one."""
    if named := sites_named(cell.clients.malicious):
        return frozenset(named)
    drawn = Rng(seed).child("hostile").numpy().permutation(cell.config.clients.total)[: cell.malicious]
    return frozenset(drawn.tolist())


def _key(cell: PlannedCell, seed: int) -> _Key:
    fixed = cell.config.task.partition_seed
    rng = Rng(seed if fixed is None else fixed)
    copying = malicious_clients(cell, seed) if cell.copied else frozenset()
    task, root = cell.config.task, cell.config.server.root_data
    many, dtype, first = cell.config.clients.total, cell.training.dtype, cell.training.first_model
    subset = task.subset.train, task.subset.test
    how = cell.statistics.normalization
    return cell.data, cell.model, cell.partition, many, rng, root, copying, task.shared, subset, dtype, first, how


_K = TypeVar("_K")


def _fetch_or_make(there: dict[_K, Kept], key: _K, most: int | None, make: Callable[[], Kept]) -> Kept:
    """The value of a key, made if missing; the least recently used value is evicted first."""
    if key not in there:
        while most is not None and len(there) >= most:
            del there[next(iter(there))]
        there[key] = make()
    there[key] = there.pop(key)
    return there[key]
