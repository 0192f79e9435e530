"""Audits of a cell's noise in its own training and its clients' own code, on a small task of the auditor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedguard.architectures.systems.event_server import EventServer
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.contracts import (
    Check,
    Dataset,
    Examples,
    Lab,
    LocalPlan,
    Observer,
    Participation,
    Protocol,
    RoundReport,
    Task,
)
from fedguard.contracts.audit import CLASSES, SHAPE
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks import cohort
from fedguard.tasks.classification import Classification
from fedguard.tasks.models.softmax import Softmax
from fedguard.tasks.network import FlatNetwork

#: Called with a description of the next step.
Progress = Callable[[str], None]


def silent(what: str) -> None:
    """Ignore progress."""


def training_checks(cell: PlannedCell, seed: int, before: Progress = silent) -> tuple[Check, ...]:
    """Run a few rounds of a cell's training without malicious clients, and test the noise in what the server sees.

    None if the server adds up models instead of updates: updates cannot be separated from them here.
    """
    system = cell.architecture
    if isinstance(system, EventServer) and type(system).toward is not EventServer.toward:
        before(f"not watched: {system.name} adds up differences between models; canaries alone are run")
        return ()
    return cell.noise.audit_rounds(cell.in_sessions, CellLab(cell, seed, before))


@dataclass(frozen=True)
class CellLab(Lab):
    """The bench of one cell."""

    cell: PlannedCell
    seed: int
    before: Progress = silent

    @cached_property
    def task(self) -> Classification:
        # What an audit measures depends on neither, and its own models are float32
        plain = self.cell.training.model_copy(update={"dtype": "float32", "first_model": None})
        task = Workbench().task(self.cell.with_parts(training=plain), self.seed)
        if not isinstance(task, Classification):
            name = self.cell.data.name
            raise ConfigError(f"{name}: an audit has canaries, which are examples, and actors have none. Leave it out.")
        return task

    @property
    def tokens(self) -> bool:
        return self.task.dataset.tokens is not None

    def watch(
        self, parts: Sequence[Examples], rounds: int, clients: Participation | None = None
    ) -> tuple[Task, list[RoundReport]]:
        rest = Examples(torch.zeros(CLASSES, *SHAPE), torch.arange(CLASSES))
        dataset, model = Dataset(rest, rest, CLASSES, (0.0, 1.0)), _ZeroInitSoftmax()
        task = Classification(dataset, tuple(parts), None, model, FlatNetwork(model, SHAPE, CLASSES, Rng(0)))
        setup = replace(
            set_up(self.cell, self.seed, task),
            malicious=frozenset(),
            evaluate_every=self.cell.training.rounds,
            observer=Observer(None),
        ).with_parts(
            pipeline=load_registry().pipeline("mean"),
            attack=None,
            attacking=0,
            assumed_f=0,
            clients=replace(self.cell.clients, most_trainings=None),
            meeting=self.cell.meeting,  # by which the noise is found that is expected here
        )
        if clients is not None:
            plain = setup.cell.training.model_copy(update={"worker_momentum": 0.0})
            unmasked = self.cell.known.build("masking", "none")
            setup = setup.with_parts(clients=clients, training=plain, protocol=Protocol(), masking=unmasked)
        return task, list(islice(self.cell.architecture.aggregates(setup), rounds))

    def train(self, examples: Examples, model: Tensor, plan: LocalPlan, rng: Rng) -> Tensor:
        out = torch.zeros(1, len(model))
        cohort.Cohort(_network(examples.x.shape[1]), [examples]).train(model, [0], plan, rng, out)
        return out[0]

    def batches(self, plan: LocalPlan, size: int, draw: np.random.Generator) -> cohort.Schedule:
        return cohort.schedule(plan, size, draw)

    def alone(self, plan: LocalPlan, runs: int) -> NDArray[np.float64]:
        nobody = Examples(*(tensor[:0] for tensor in (self.task.examples(0).x, self.task.examples(0).y)))
        client, moved = cohort.Cohort(self.task.network, [nobody]), torch.zeros(runs, 1, self.task.dim)
        for number, out in enumerate(moved):
            client.train(torch.zeros(self.task.dim), [0], plan, Rng(self.seed).child("audit", "model", number), out)
        return moved[:, 0].double().numpy()

    def compute_updates(self, parts: Sequence[Examples], model: Tensor, plan: LocalPlan) -> NDArray[np.float64]:
        moved, draws = torch.zeros(len(parts), 1, self.task.dim), Rng(self.seed).child("audit", "examples")
        for part, out in zip(parts, moved, strict=True):
            cohort.Cohort(self.task.network, [part]).train(model, [0], plan, draws, out)
        return moved[:, 0].double().numpy()


@lru_cache(maxsize=4)
def _network(width: int) -> FlatNetwork:
    return FlatNetwork(Softmax(), (width,), 2, Rng(0))


@dataclass(frozen=True, kw_only=True)
class _ZeroInitSoftmax(Softmax):
    """Softmax regression that starts at zero, where float32 shows steps of any size."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module = super().build(shape, classes)
        for parameter in module.parameters():
            nn.init.zeros_(parameter)
        return module
