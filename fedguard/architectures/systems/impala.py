"""IMPALA: actors send trajectories, and the learner works out the gradients (Espeholt et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedguard.architectures.systems.learner import Learner
from fedguard.contracts import Combination, Participation, PoisonAttack, PositiveInt
from fedguard.simulated.barriers import Barrier, buffered


@dataclass(frozen=True, kw_only=True)
class Impala(Learner):
    """Importance-weighted actor-learner: actors send trajectories by themselves, and the learner learns from a few at a time.

    $w <- w + eta S(R(-g_1, ..., -g_B))$ as soon as B trajectories have come, where $g_i$ is the gradient of the i-th at the
    learner's model of now, corrected by V-trace (`training.algorithm: vtrace`) for the older one by which its actor acted. The
    learner works out each actor's gradient by itself, so any rule R goes.

    What travels are observations, actions, rewards, and the probabilities that actors say they acted with: a malicious actor
    lies about these, and cannot send a gradient of its own making.

    Args:
        buffer: B.
    """

    name = "impala"
    source = "Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner, ICML 2018"

    buffer: PositiveInt = 4

    @property
    def more_rows(self) -> str:
        return "Here n counts the trajectories of one buffer: raise buffer."

    @property
    def shows_others(self) -> str:
        return "The learner reads each observation, action and reward of every actor."

    def barrier(self, clients: Participation) -> Barrier:
        return buffered(self.buffer)

    def updates(self, clients: Participation) -> int:
        return self.buffer

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        attack, algorithm = cell.adversary, cell.training.algorithm
        if algorithm.acts and not algorithm.corrects:
            yield (
                f"the learner of impala works out gradients from trajectories, and under {algorithm.name} actors do so. Set "
                "training.algorithm: vtrace, or use a3c."
            )
        if isinstance(attack, PoisonAttack) and type(attack).craft is not PoisonAttack.craft:
            yield (
                f"{attack.name} changes updates, and the actors of impala send trajectories. Use reward_flip, reward_scaling "
                "or false_behaviour, or a3c."
            )
        if cell.pipeline.transforms or cell.protocol.masked or cell.training.worker_momentum:
            yield (
                "the actors of impala send trajectories, which nobody can mask, clip or average as if they were updates. Leave "
                "out client defenses, secure_aggregation and worker_momentum, or use a2c."
            )
