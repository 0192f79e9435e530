"""A server with clients in Ray actors: each actor trains some of the clients on request, on their own examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from fedguard.bench.conformance import remote
from fedguard.bench.conformance.engine import TrainingOutcome
from fedguard.bench.conformance.remote import ClientProcess, Key, RemoteTrainer
from fedguard.bench.running.engines.ray import Ray
from fedguard.config import PlannedCell
from fedguard.contracts import Architecture, Setup
from fedguard.errors import ConfigError, oneline

#: Seconds that a training may take, with the start of its actor.
PATIENCE = 300.0


@dataclass(frozen=True)
class RayEngine:
    """Engine for synchronous and asynchronous servers, with clients in Ray actors.

    Args:
        address: address of a cluster; None for one on this machine alone.
        processes: number of actors, to which clients are assigned in turn.
    """

    address: str | None = None
    processes: int = 2

    name = "ray"
    runs = remote.RUNS

    def why_not(self, architecture: Architecture) -> str | None:
        return remote.why_not(self.name, architecture)

    def run(self, cells: Sequence[PlannedCell], seed: int) -> list[TrainingOutcome]:
        with Ray(self.address).connect(self.processes) as cluster:
            actor, of_all = cluster.ray.remote(num_cpus=0)(ClientProcess), [cell.canonical for cell in cells]
            nodes = [actor.remote(of_all, seed) for _ in range(self.processes)]
            return [
                self._run(ActorTrainer(cluster.ray, nodes, number), cell, seed) for number, cell in enumerate(cells)
            ]

    def _run(self, there: ActorTrainer, cell: PlannedCell, seed: int) -> TrainingOutcome:
        there.ready()
        return remote.train_remotely(there, cell, seed)

    def simulate_cell(self, cell: PlannedCell, setup: Setup, order: tuple[Key, ...] | None) -> Tensor:
        return remote.simulate_in_order(cell, setup, order)


class ActorTrainer(RemoteTrainer):
    """A trainer with clients in actors.

    Args:
        ray: the package.
        nodes: the actors, to which clients are assigned in turn.
        cell: the number of the cell to train.
    """

    def __init__(self, ray: Any, nodes: Sequence[Any], cell: int) -> None:
        super().__init__()
        self._ray, self._nodes, self._cell = ray, nodes, cell
        self._under_way: dict[Any, Key] = {}

    def ready(self) -> None:
        """Wait until all have loaded their data."""
        self._get([node.ready.remote() for node in self._nodes])

    def send(self, trainings: Sequence[tuple[Key, Tensor]]) -> None:
        for (client, turn), model in trainings:
            node = self._nodes[client % len(self._nodes)]
            self._under_way[node.train.remote(self._cell, client, turn, model.numpy())] = (client, turn)

    def receive(self) -> tuple[Key, NDArray[Any]]:
        done, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=PATIENCE)
        if not done:
            raise ConfigError(f"conform: no actor has answered for {PATIENCE:g} s.")
        (row,) = self._get(done)
        return self._under_way.pop(done[0]), row

    def _get(self, what: list[Any]) -> list[Any]:
        try:
            found: list[Any] = self._ray.get(what, timeout=PATIENCE)
        except self._ray.exceptions.RayError as error:
            raise ConfigError(f"conform: an actor did not come to its end: {oneline(error)[:300]}.") from None
        return found
