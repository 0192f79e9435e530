"""FedAvg with a step that becomes smaller from round to round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Gt, Le
from torch import Tensor

from fedguard.contracts import (
    Combination,
    FederatedAlgorithm,
    LocalPlan,
    RunningAlgorithm,
    Setup,
    Task,
    Training,
)
from fedguard.errors import require
from fedguard.rng import Streams


class Running(RunningAlgorithm):
    def __init__(self, setup: Setup, decay: float) -> None:
        super().__init__(setup)
        self._decay, self._round = decay, 0

    def begin(self, chosen: Sequence[int]) -> None:
        self._round += 1

    def train(
        self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, rows: Tensor
    ) -> None:
        task.local_updates(model, clients, replace(plan, lr=plan.lr * self._decay ** (self._round - 1)), rng, rows)


@dataclass(frozen=True, kw_only=True)
class Decayed(FederatedAlgorithm):
    """FedAvg whose clients take smaller steps in each round.

    Args:
        decay: the step of a round over that of the round before.
    """

    name = "decayed"
    source = "a test"
    keeps = "the number of the round"
    tells = "the step size goes to the clients"

    decay: Annotated[float, Gt(0), Le(1)] = 0.5

    def check(self, training: Training) -> None:
        require(training.momentum == 0, "decayed has no momentum; set momentum: 0.")

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.pipeline.rule.name == "median":
            yield "decayed is made for the mean. Use mean."

    def floats_kept(self, task: Task) -> int:
        return 1

    def start(self, setup: Setup) -> Running:
        return Running(setup, self.decay)
