"""Models of which each client keeps a part for itself: what FedPer and FedBN have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from fedguard.contracts import (
    AlgorithmSetup,
    CellContext,
    Evaluation,
    FederatedAlgorithm,
    LocalPlan,
    LocalStatistics,
    PoisonAttack,
    RunningAlgorithm,
    Sight,
    Task,
)
from fedguard.contracts.at_clients import evaluate_at_clients
from fedguard.rng import Rng, Streams

#: Coordinates of a model: a range of them, or their numbers, int64 ``[any]``
Coordinates: TypeAlias = slice | Tensor


@dataclass(frozen=True, kw_only=True)
class PersonalAlgorithm(FederatedAlgorithm):
    """Each client trains all parameters and sends what the shared ones moved by; the others never travel.

    Updates keep their length d; the part that a client keeps is 0 in everybody's update. The global model keeps its initial
    values there, from which each client starts too. The clients train one by one, since each starts from another model.

    A model is evaluated at each honest client (see `fedguard.contracts.at_clients`), whether the client has trained yet or not.
    """

    def reasons(self, cell: CellContext) -> Iterator[str]:
        """Nobody but a client has a whole model."""
        yield from super().reasons(cell)
        looking = cell.pipeline.looking_at_data
        looking += [one.name for one in cell.pipeline.stages if any(Sight.MODEL in way for way in one.needs)]
        if looking:
            yield (
                f"{' and '.join(looking)} works with the whole model, and under {self.name} each client keeps {self.keeps} for "
                "itself. Use fedavg."
            )
        if isinstance(cell.adversary, PoisonAttack) and cell.adversary.goal == "backdoor":
            yield (
                f"{cell.adversary.name}'s backdoor is measured on one model, and under {self.name} there is one for each "
                "client. Use fedavg."
            )
        if cell.evasion is not None:
            yield (
                f"{cell.evasion.name} works on one model, and under {self.name} there is one for each client. Leave out "
                "evaluation.evasion, or use fedavg."
            )

    def floats_kept(self, task: Task) -> int:
        return int(torch.empty(task.dim)[self.coordinates(task)].numel())

    def coordinates(self, task: Task) -> Coordinates:
        """The coordinates of the model that a client keeps for itself.

        Raises:
            ConfigError: the network has no such part, or nothing else.
        """
        raise NotImplementedError

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _RunningPersonal(setup, self.coordinates(setup.task))


class _RunningPersonal(RunningAlgorithm):
    def __init__(self, setup: AlgorithmSetup, kept: Coordinates) -> None:
        super().__init__(setup)
        self._kept = kept
        self._own: dict[int, Tensor] = {}
        self._new: dict[int, Tensor] = {}

    def begin(self, chosen: Sequence[int]) -> None:
        self._new = {}

    def train(
        self,
        task: Task,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        rows: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        streams = [rng] * len(clients) if isinstance(rng, Rng) else rng
        for place, (client, one, row) in enumerate(zip(clients, streams, rows, strict=True)):
            start = self._of(model, client)
            own = statistics and statistics.select(slice(place, place + 1))
            task.local_updates(start, [client], plan, one, row[None], own)
            self._new[client] = start[self._kept] + row[self._kept]
        self.trim(rows)

    def trim(self, rows: Tensor) -> None:
        rows[:, self._kept] = 0

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        # Not in `settle`: this part never travels, so the client keeps it even if its update is lost
        self._own |= {client: self._new[client] for client in clients}

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        shared = aggregate.clone()
        shared[self._kept] = 0  # where a rule adds noise
        return shared

    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        models, honest = partial(self._of, model), self.setup.honest
        return evaluate_at_clients(self.setup.task, honest, models, statistics, self._own)

    def _of(self, model: Tensor, client: int) -> Tensor:
        """float32 ``[d]``: the model with a client's own part."""
        whole = model.clone()
        if client in self._own:
            whole[self._kept] = self._own[client]
        return whole
