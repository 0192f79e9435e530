"""Remote clients: the requests of a synchronous or asynchronous server, independent of the transport."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.architectures.processes import course
from fedguard.architectures.server import Server
from fedguard.architectures.systems.event_server import EventServer
from fedguard.architectures.times import world
from fedguard.bench.conformance.engine import TrainingOutcome, set_up_of, simulate_models, start_of
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import Architecture, Participation, Setup, Sight
from fedguard.errors import ConfigError
from fedguard.registry import load_registry

#: A client, and which of its trainings it is.
Key = tuple[int, int]
#: What of the architectures runs so, in words.
RUNS = "server, and servers in simulated time without deadlines, backups and selection"


class ClientProcess:
    """Some clients in a separate process.

    Args:
        cells: the cells, as `PlannedCell.canonical` writes them.
    """

    def __init__(self, cells: Sequence[Mapping[str, Any]], seed: int) -> None:
        torch.set_num_threads(1)
        built = [build_cell(CellConfig.model_validate(cell), load_registry()) for cell in cells]
        self._clients = [Clients(set_up_of(cell, seed)) for cell in built]

    def ready(self) -> None:
        """Do nothing: a process that answers has loaded its data."""

    def train(self, cell: int, client: int, turn: int, model: NDArray[Any]) -> NDArray[Any]:
        """float32 ``[any]``: the message of a client after its k-th local training in a cell, from a model ``[d]``."""
        return self._clients[cell].train_client(client, turn, torch.tensor(model)).numpy()


class RemoteTrainer(ABC):
    """A trainer with remote clients."""

    def __init__(self) -> None:
        self._from: dict[Key, Tensor] = {}
        self._came: dict[Key, Tensor] = {}
        self._untold: deque[Key] = deque()

    @abstractmethod
    def send(self, trainings: Sequence[tuple[Key, Tensor]]) -> None:
        """Start local trainings of clients, each from a model, float32 ``[d]``."""

    @abstractmethod
    def receive(self) -> tuple[Key, NDArray[Any]]:
        """Wait for the next finished training, and return its message, float32 ``[any]``.

        Raises:
            ConfigError: a process was lost, or no message arrives.
        """

    def begin(self, key: Key, model: Tensor) -> None:
        """Start the local training of a client from a model, float32 ``[d]``; its message arrives later."""
        self._from[key] = model
        self.send([(key, model)])

    def wait_for_next(self) -> Key:
        """Wait for the next finished training."""
        return self._untold.popleft() if self._untold else self._next()

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> list[Tensor]:
        """The messages of these trainings; waits for those that have not arrived.

        Raises:
            ConfigError: a process was lost.
        """
        starts, keys = model.expand(len(clients), -1), list(zip(clients, rounds, strict=True))
        fresh = [(key, start) for key, start in zip(keys, starts, strict=True) if key not in self._from]
        self._from.update(fresh)
        self.send(fresh)
        for key, start in zip(keys, starts, strict=True):
            assert torch.equal(self._from[key], start), f"{key} began with another model than the server says"
        asked = {key for key, _ in fresh}
        while not all(key in self._came for key in keys):
            if (key := self._next()) not in asked:
                self._untold.append(key)  # it arrived by itself meanwhile
        for key in keys:
            del self._from[key]
        return [self._came.pop(key) for key in keys]

    def _next(self) -> Key:
        key, row = self.receive()
        self._came[key] = torch.tensor(row)
        return key


def why_not(engine: str, architecture: Architecture) -> str | None:
    """Why an architecture does not run with remote clients; None if it does."""
    if isinstance(architecture, Server):
        return None
    if not isinstance(architecture, EventServer):
        return f"{engine} runs {RUNS}. Take another engine."
    if architecture.replays or Sight.OBSERVATIONS in architecture.exposes.server:
        return f"what the actors of {architecture.name} send is not carried there yet. Take a3c, a2c or impala."
    barrier = architecture.barrier(Participation(total=4))
    if barrier.deadline is not None or barrier.backups or barrier.selection is not None:
        return (
            f"{architecture.name} decides by simulated seconds, which a real run does not keep. Take parameter_server."
        )
    return None


def train_remotely(remote: RemoteTrainer, cell: PlannedCell, seed: int) -> TrainingOutcome:
    """Run a cell's architecture with remote clients.

    Raises:
        ConfigError: the architecture depends on simulated time, or a process was lost.
    """
    setup = set_up_of(cell, seed)
    last = start_of(setup)
    if (
        isinstance(cell.architecture, EventServer)
        and cell.architecture.fractions(setup, world(setup, last)) is not None
    ):
        raise ConfigError(
            f"conform: {cell.architecture.name} deals out shares of its clients' work by simulated seconds, which a "
            "real run does not keep. Take parameter_server."
        )
    began, order = time.monotonic(), list[Key]()
    there = replace(setup, trainer=remote.train)
    if isinstance(cell.architecture, EventServer):
        reports = course.real(cell.architecture, there, remote.begin, remote.wait_for_next, order)
    else:
        reports = cell.architecture.run(there)
    for report in reports:
        last = report.model
    return TrainingOutcome(last[None], time.monotonic() - began, tuple(order) if order else None)


def simulate_in_order(cell: PlannedCell, setup: Setup, order: tuple[Key, ...] | None) -> Tensor:
    """float32 ``[1, d]``: the final model in simulation, with the arrival order of the real training."""
    if order is None or not isinstance(cell.architecture, EventServer):
        return simulate_models(cell.architecture, setup)
    last = start_of(setup)
    for report in course.replay_course(cell.architecture, setup, order):
        last = report.model
    return last[None]
