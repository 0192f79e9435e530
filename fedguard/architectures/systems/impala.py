"""IMPALA: actors send trajectories, and the learner works out the gradients (Espeholt et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedguard.architectures.systems.central_learner import CentralLearner
from fedguard.contracts import Cell, Participation, PositiveInt
from fedguard.contracts.channels import BEHAVIOR
from fedguard.simulated.barriers import Barrier, buffer_barrier


@dataclass(frozen=True, kw_only=True)
class Impala(CentralLearner):
    """Importance-weighted actor-learner: actors send trajectories by themselves, and the learner learns from a few at a time.

    $w <- w + eta S(R(-g_1, ..., -g_B))$ as soon as B trajectories have come, where $g_i$ is the gradient of the i-th at the
    learner's current model, corrected by V-trace (`training.algorithm: vtrace`) for the older model by which its actor acted.
    The learner computes the gradient of each trajectory, so any rule R can run.

    Messages are observations, actions, rewards, and the probabilities with which actors claim to have acted. A malicious actor
    can lie about these, but cannot send a gradient of its own.

    Args:
        buffer: B.
    """

    name = "impala"
    source = "Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner, ICML 2018"
    channels = frozenset({BEHAVIOR})

    buffer: PositiveInt = 4

    @property
    def more_rows(self) -> str:
        return "Here n counts the trajectories of one buffer: raise buffer."

    def barrier(self, clients: Participation) -> Barrier:
        return buffer_barrier(self.buffer)

    def updates(self, clients: Participation) -> int:
        return self.buffer

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        algorithm = cell.algorithm
        if algorithm.acts and not algorithm.corrects and not algorithm.replays:
            yield (
                f"the learner of {self.name} works out gradients from trajectories, and under {algorithm.name} actors do so. "
                "Set training.algorithm: vtrace, or use a3c."
            )
