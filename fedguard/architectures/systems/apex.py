"""Ape-X: actors fill a replay, and the learner learns from what surprises it most (Horgan et al., ICLR 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from fedguard.architectures.systems.central_learner import CentralLearner
from fedguard.contracts import Cell, Participation
from fedguard.contracts.channels import PRIORITIES, TRANSITIONS
from fedguard.simulated.barriers import Barrier, asp


@dataclass(frozen=True, kw_only=True)
class ApeX(CentralLearner):
    """Distributed prioritized replay: actors that nobody waits for send transitions with priorities of their own reckoning.

    $w <- w + eta S(-g)$ whenever transitions of an actor have come, where g is the gradient of a batch that the learner draws
    from its replay (`training.algorithm: double_dqn`).

    A batch has transitions of many actors, so no rule can tell actors apart: the rule is the mean. Defenses are the replay's
    own ``recompute`` and ``quota``.
    """

    name = "apex"
    source = "Horgan et al., Distributed Prioritized Experience Replay, ICLR 2018"
    replays = True
    channels = frozenset({PRIORITIES, TRANSITIONS})
    #: The algorithm that this architecture is for.
    wanted: ClassVar[str] = "double_dqn"

    @property
    def more_rows(self) -> str:
        return f"Here each aggregate is one batch of the replay: use mean, with recompute or quota of {self.wanted}, or impala."

    @property
    def shows_others(self) -> str:
        return "The learner keeps each observation, action and reward of every actor, and reads them again and again."

    def barrier(self, clients: Participation) -> Barrier:
        return asp()

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        algorithm = cell.algorithm
        if algorithm.acts and not algorithm.replays:
            yield (
                f"{self.name} learns from a replay, and {algorithm.name} does not. Use training.algorithm: {self.wanted}, or "
                "impala."
            )
        elif algorithm.acts and algorithm.learner != self.name:
            yield (
                f"{algorithm.name} draws from the replay of {algorithm.learner}, and {self.name} has another. Use "
                f"training.algorithm: {self.wanted}, or {algorithm.learner}."
            )
        if cell.private:
            yield "noise hides what a client sends in one aggregate, and a replay hands it out again and again. Use a2c."
