"""SEED RL: actors have no model; the learner sees each observation and says what to do (Espeholt et al., ICLR 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedguard.architectures.systems.impala import Impala
from fedguard.contracts import ActingTask, Cell, Exposure, Messages, PoisonAttack, Sight, Task
from fedguard.contracts.channels import TRAJECTORIES


@dataclass(frozen=True, kw_only=True)
class SeedRL(Impala):
    """Scalable, efficient deep RL: as `impala`, but each step's observation goes to the learner, which answers with the action.

    $w <- w + eta S(R(-g_1, ..., -g_B))$, and equal to `impala` if trajectories come in the same order. No model travels: for
    a rollout each copy sends ``t_max`` observations, rewards and ends plus one observation, and receives ``t_max`` actions,
    one step after another, so the latency of a link counts twice in every step.

    The learner draws the actions and knows their probabilities, so no actor can lie about them. A malicious actor does not see
    the model, but can still change its observations and rewards. A rollout is acted by the model with which it began; the
    source uses the current model in every step.
    """

    name = "seed_rl"
    source = "Espeholt et al., SEED RL: Scalable and Efficient Deep-RL with Accelerated Central Inference, ICLR 2020"
    channels = frozenset()
    exposes = Exposure(server=Impala.exposes.server | Sight.OBSERVATIONS, clients=Impala.exposes.clients & ~Sight.MODEL)

    @property
    def shows_others(self) -> str:
        return "The learner reads each observation of every actor as it is made, and decides on each action."

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if isinstance(cell.adversary, PoisonAttack) and TRAJECTORIES in cell.adversary.lies:
            yield (
                f"{cell.adversary.name} tells afterwards of what was not met with, and the learner of {self.name} has seen "
                "each observation as it was made and drawn each action. Use reward_flip, or impala."
            )

    def messages(self, cell: Cell, task: Task) -> Messages:
        assert isinstance(task, ActingTask)
        copies, steps = task.sizes[0], cell.plan.epochs or 1
        observation = 4 * math.prod(task.shape)
        # A reward is a float32, an end one byte; the last observation is for the bootstrapped value
        up = copies * (steps * (observation + 4 + 1) + observation)
        return Messages(up=up, down=copies * steps * 4 * task.policy.numbers, each_way=steps)
