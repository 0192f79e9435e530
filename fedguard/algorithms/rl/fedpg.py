"""FedPG: actors send policy gradients, and the server takes steps of its own between them (Fan et al., NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedguard.algorithms.rl.actor_critic import ActorCritic, RunningCritics
from fedguard.contracts import ActingTask, PositiveInt, Rollout, RunningAlgorithm, Setup, Task, Training
from fedguard.errors import require

#: The number under which the server acts; no client has it.
SERVER = -1


@dataclass(frozen=True, kw_only=True)
class FedPG(ActorCritic):
    r"""As `actor_critic`, and from each aggregate on the server goes some steps by itself, in environments of its own.

    $w <- theta_N$ with $theta_0 = w$, $theta_{k+1} = theta_k + eta v_k$ and
    $v_k = mu + mean_j [g_j(theta_k) - omega_j g_j(theta_0)]$, where $mu$ is the aggregate, and j counts ``batch`` trajectories
    of ``t_max`` steps in which the server acts by $theta_k$. $g_j(theta)$ is the negative gradient of the loss L of trajectory
    j. With $omega_j = prod_t pi(a_t | s_t; theta_0) / pi(a_t | s_t; theta_k)$, $omega_j g_j(theta_0)$ has the mean of g at
    $theta_0$, as $mu$ has; the noise of $mu$ therefore enters once for N steps. $v_0 = mu$ takes no trajectory.

    N is drawn: $P(N = k) = p^k (1 - p)$ with $p = B / (B + b)$, B trajectories of an actor and b = ``batch``; B / b on average,
    and 0 with probability 1 - p. With the rule `fedpg_br` this is the source's FedPG-BR. Its trajectories are whole episodes:
    set ``t_max`` to an episode's length. The server's own steps are not counted among the actors' steps.

    Args:
        t_max: steps of a rollout.
        gamma: the discount of what comes later.
        entropy: beta, what the spread of the policy is worth.
        value: c, what the critic's error counts.
        clip: the largest length of a gradient that an honest actor sends; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them.
        batch: b, trajectories of each of the server's own steps.
    """

    name = "fedpg"
    source = "Fan et al., Fault-Tolerant Federated Reinforcement Learning with Theoretical Guarantee, NeurIPS 2021"

    batch: PositiveInt = 4

    def check(self, training: Training) -> None:
        super().check(training)
        require(
            not (training.server_optimizer or training.server_momentum or training.worker_momentum),
            f"{self.name} takes plain steps from each aggregate; expected neither server_optimizer nor momentum. Leave them "
            "out, or use actor_critic.",
        )

    def step(self, task: ActingTask, start: Tensor, now: Tensor, aggregate: Tensor, rollout: Rollout) -> Tensor:
        """$v_k$, float32 ``[d]``.

        Args:
            start, now: $theta_0$ and $theta_k$.
            rollout: of b copies, acted by ``now``.
        """
        # Each trajectory by itself, since each has an importance weight of its own
        ones = [Rollout(*(part[:, j : j + 1] for part in rollout.parts)) for j in range(rollout.rewards.shape[1])]
        here, there = (-self.slopes(task, model.expand(len(ones), -1), ones) for model in (now, start))
        # The product of all ratios as a sum of logarithms, so that no partial product underflows
        likely = task.policy.log_prob(self.evaluate_rollout(task, start, rollout)[0], rollout.actions)
        omega = (likely - rollout.behavior).sum(0).exp()
        return aggregate + (here - omega[:, None] * there).mean(0)

    def mean_steps(self, task: Task) -> float:
        """N on average."""
        return task.sizes[0] / self.batch

    def start(self, setup: Setup) -> RunningAlgorithm:
        return _RunningFedPG(setup, self)


class _RunningFedPG(RunningCritics):
    """The actors, and the state of the server's own environments."""

    algorithm: FedPG

    def __init__(self, setup: Setup, algorithm: FedPG) -> None:
        super().__init__(setup, algorithm)
        assert isinstance(setup.task, ActingTask)
        self._own = setup.task.with_copies(algorithm.batch)
        self._rng = setup.rng.child("server acts")
        self._state: Any = self._own.start_actor(self._rng.child("start").numpy())
        self._aggregates = 0

    def steps(self, rng: np.random.Generator) -> int:
        """N."""
        # numpy counts the successful trial too, so 1 is taken off
        return int(rng.geometric(1 / (1 + self.algorithm.mean_steps(self.setup.task)))) - 1

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        """$(theta_N - theta_0) / eta$."""
        self._aggregates += 1
        rng, eta = self._rng.child("aggregate", self._aggregates).numpy(), self.setup.cell.training.server_step
        way = torch.zeros_like(aggregate)
        for k in range(self.steps(rng)):
            way = way + (self._direction(aggregate, model, model + eta * way, rng) if k else aggregate)
        return way

    def _direction(self, aggregate: Tensor, start: Tensor, now: Tensor, rng: np.random.Generator) -> Tensor:
        one, own = self.algorithm, self._own
        (rollout,), (self._state,) = own.rollouts(now[None], [SERVER], [self._state], one.t_max, [rng])
        return one.step(own, start, now, aggregate, rollout)

    def gain(self, n: int) -> float:
        return self.algorithm.mean_steps(self.setup.task)
