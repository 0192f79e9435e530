"""The interface of real engines, and the training outcomes of both sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.architectures.statistics_checks import require_updates_alone
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.contracts import Architecture, Setup


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a training.

    Attributes:
        models: float32 ``[n, d]``: the model of each node; one row if all nodes have the same model.
        seconds: duration of the training, without the start of processes.
        order: in asynchronous training, the arrivals as (client, k) for the k-th local training of the client.
    """

    models: Tensor
    seconds: float
    order: tuple[tuple[int, int], ...] | None = None


class RealEngine(Protocol):
    """Runs a cell on real processes."""

    name: str
    #: What of the architectures it runs, in words.
    runs: str

    def why_not(self, architecture: Architecture) -> str | None:
        """Why the engine does not run an architecture; None if it does."""

    def run(self, cells: Sequence[PlannedCell], seed: int) -> list[TrainingOutcome]:
        """Train each cell, one after the other on the same processes.

        Raises:
            ConfigError: the engine is not available here, or a process did not finish.
        """

    def simulate_cell(self, cell: PlannedCell, setup: Setup, order: tuple[tuple[int, int], ...] | None) -> Tensor:
        """float32 ``[n, d]``: the final models of the simulated cell, with the arrival order of the real training."""


class SequentialTrainer:
    """A trainer that trains clients in this process, one after the other, as each process does with its own.

    The simulation trains all of them in one product, whose sums may differ in the last bit.
    """

    def __init__(self, setup: Setup) -> None:
        self._clients = Clients(setup)

    def train(self, model: Tensor, rounds: Sequence[int], clients: tuple[int, ...]) -> list[Tensor]:
        starts = model.expand(len(clients), -1)
        return [self._clients.train_client(*one) for one in zip(clients, rounds, starts, strict=True)]


def set_up_of(cell: PlannedCell, seed: int) -> Setup:
    """The input of the cell's architecture.

    Raises:
        PreconditionError: clients send running statistics, which real processes do not carry.
    """
    return require_updates_alone(set_up(cell, seed, Workbench().task(cell, seed)), "conform")


def start_of(setup: Setup) -> Tensor:
    """float32 ``[d]``: the model before the first round."""
    return setup.task.initial_model(setup.rng.child("model"))


def simulate_models(architecture: Architecture, setup: Setup) -> Tensor:
    """float32 ``[n, d]``: the final models of a simulation."""
    if isinstance(architecture, Gossip):
        nodes = Nodes(setup, architecture.seats(setup), architecture.broadcast)
        after = architecture.models(nodes)
        final = nodes.start
        for round in range(1, setup.cell.training.rounds + 1):
            nodes.begin(round)
            final = next(after)
        return final
    last = start_of(setup)
    for report in architecture.run(setup):
        last = report.model
    return last[None]
