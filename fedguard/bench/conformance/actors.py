"""A server, and clients in Ray actors: each actor trains some clients, on their own examples, as it is asked to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.architectures.processes import course
from fedguard.architectures.server import Server
from fedguard.architectures.systems.event_server import EventServer
from fedguard.architectures.times import world
from fedguard.bench.conformance.engine import Outcome, set_up_of, simulated, start_of
from fedguard.bench.running.engines.ray import Ray
from fedguard.config import Cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Architecture, Participation, Setup
from fedguard.errors import ConfigError, oneline
from fedguard.registry import installed

#: A client, and which of its trainings it is.
Key = tuple[int, int]
#: Seconds that a training may take, with the start of its actor.
PATIENCE = 300.0


@dataclass(frozen=True)
class Actors:
    """The server, and servers that do not wait for all.

    Args:
        address: of a cluster; None for one on this machine alone.
        processes: how many actors the clients are dealt to, one after the other.
    """

    address: str | None = None
    processes: int = 2

    name = "ray"
    runs = "server, and servers in simulated time without deadlines, backups and selection"

    def why_not(self, architecture: Architecture) -> str | None:
        if isinstance(architecture, Server):
            return None
        if not isinstance(architecture, EventServer):
            return f"ray runs {self.runs}. Take another engine."
        barrier = architecture.barrier(Participation(total=4))
        if barrier.deadline is not None or barrier.backups or barrier.selection is not None:
            return f"{architecture.name} decides by simulated seconds, which a real run does not keep. Take parameter_server."
        return None

    def run(self, cells: Sequence[Cell], seed: int) -> list[Outcome]:
        with Ray(self.address).connected(self.processes) as cluster:
            actor, of_all = cluster.ray.remote(num_cpus=0)(Node), [cell.canonical for cell in cells]
            nodes = [actor.remote(of_all, seed) for _ in range(self.processes)]
            return [self._run(Remote(cluster.ray, nodes, number), cell, seed) for number, cell in enumerate(cells)]

    def _run(self, remote: Remote, cell: Cell, seed: int) -> Outcome:
        setup = set_up_of(cell, seed)
        if isinstance(cell.architecture, EventServer):
            start = start_of(setup)
            if cell.architecture.fractions(setup, world(setup, start)) is not None:
                raise ConfigError(
                    f"conform: {cell.architecture.name} deals out shares of its clients' work by simulated seconds, which a "
                    "real run does not keep. Take parameter_server."
                )
        remote.ready()
        began, order = time.monotonic(), list[Key]()
        there, last = replace(setup, trainer=remote), start_of(setup)
        if isinstance(cell.architecture, EventServer):
            reports = course.real(cell.architecture, there, remote.begin, remote.arrived, order)
        else:
            reports = cell.architecture.run(there)
        for report in reports:
            last = report.model
        seconds = time.monotonic() - began
        return Outcome(last[None], seconds, tuple(order) if order else None)

    def simulated(self, cell: Cell, setup: Setup, order: tuple[Key, ...] | None) -> Tensor:
        if order is None or not isinstance(cell.architecture, EventServer):
            return simulated(cell.architecture, setup)
        last = start_of(setup)
        for report in course.replayed(cell.architecture, setup, order):
            last = report.model
        return last[None]


class Node:
    """Some clients in a process of their own.

    Args:
        cells: as `Cell.canonical` writes them.
    """

    def __init__(self, cells: Sequence[Mapping[str, Any]], seed: int) -> None:
        torch.set_num_threads(1)
        built = [Cell.build(CellConfig.model_validate(cell), installed()) for cell in cells]
        self._clients = [Clients(set_up_of(cell, seed)) for cell in built]

    def ready(self) -> None:
        """Nothing more: an actor that answers has loaded its data."""

    def train(self, cell: int, client: int, turn: int, model: NDArray[Any]) -> NDArray[Any]:
        """float32 ``[d]``: what a client's so-manieth training in a cell comes to, from a model ``[d]``."""
        row = torch.empty(1, len(model))
        self._clients[cell].train_honest(torch.tensor(model), [turn], (client,), row)
        return row[0].numpy()


@dataclass
class Remote:
    """A trainer whose clients are in actors.

    Args:
        ray: the package.
        nodes: the actors, to which clients are dealt one after the other.
        cell: which of their cells is trained.
    """

    ray: Any
    nodes: Sequence[Any]
    cell: int
    _under_way: dict[Key, Any] = field(default_factory=dict)
    _from: dict[Key, Tensor] = field(default_factory=dict)
    _done: deque[Key] = field(default_factory=deque)

    def ready(self) -> None:
        """Wait until all have loaded their data."""
        self._get([node.ready.remote() for node in self.nodes])

    def begin(self, key: Key, model: Tensor) -> None:
        """Let a client begin from a model, float32 ``[d]``."""
        client, turn = key
        self._from[key] = model
        self._under_way[key] = self.nodes[client % len(self.nodes)].train.remote(self.cell, client, turn, model.numpy())

    def arrived(self) -> Key:
        """Wait for the next that is done."""
        waiting = {self._under_way[key]: key for key in self._under_way if key not in self._done}
        done, _ = self.ray.wait(list(waiting), num_returns=1, timeout=PATIENCE)
        if not done:
            raise ConfigError(f"conform: no actor has answered for {PATIENCE:g} s.")
        key = waiting[done[0]]
        self._done.append(key)
        return key

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...], rows: Tensor) -> None:
        """Fill ``rows`` with what came, or comes now, of these trainings.

        Raises:
            ConfigError: an actor was lost.
        """
        starts, keys = model.expand(len(clients), -1), list(zip(clients, rounds, strict=True))
        for key, start in zip(keys, starts, strict=True):
            if key not in self._under_way:
                self.begin(key, start)
            assert torch.equal(self._from[key], start), f"{key} began with another model than the server says"
        for row, found in zip(rows, self._get([self._under_way.pop(key) for key in keys]), strict=True):
            row.copy_(torch.tensor(found))
        self._from = {key: start for key, start in self._from.items() if key not in keys}
        self._done = deque(key for key in self._done if key not in keys)

    def _get(self, what: list[Any]) -> list[Any]:
        try:
            found: list[Any] = self.ray.get(what, timeout=PATIENCE)
        except self.ray.exceptions.RayError as error:
            raise ConfigError(f"conform: an actor did not come to its end: {oneline(error)[:300]}.") from None
        return found
