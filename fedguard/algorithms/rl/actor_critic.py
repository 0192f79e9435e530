"""Advantage actor-critic: actors send the gradients of a few steps each (Mnih et al., ICML 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedguard.algorithms.rl.actors import Actors, RunningActors
from fedguard.algorithms.rl.rollouts import n_step_returns, stack_rollouts
from fedguard.contracts import ActingTask, AlgorithmSetup, NonNegativeFloat, Rollout, RunningAlgorithm


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Actors):
    """Each actor takes ``t_max`` steps by the model that it pulled, and sends the negative gradient of its loss.

    $L = mean_t [-log pi(a_t | s_t) (R_t - V(s_t)) - beta H(pi(. | s_t)) + c (R_t - V(s_t))^2]$ over the steps of all copies of
    the actor's environment, with the returns $R_t = r_t + gamma R_{t+1}$ bootstrapped by the value of the last state
    (`fedguard.algorithms.rl.rollouts.n_step_returns`). No gradient flows through $R_t$, nor through the advantage in the
    first term. The server adds ``lr * server_lr`` times the aggregate, or takes a step of its optimizer: the source's RMSProp
    with shared statistics is ``server_optimizer: {name: adam, beta1: 0}``.

    An actor's episodes continue from one rollout to the next. One network gives policy and value.

    Args:
        t_max: steps of a rollout.
        gamma: the discount of what comes later.
        entropy: beta, what the spread of the policy is worth.
        value: c, what the critic's error counts.
        clip: the largest length of a gradient that an honest actor sends; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them.
    """

    name = "actor_critic"
    source = "Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, ICML 2016"

    entropy: NonNegativeFloat = 0.01
    value: NonNegativeFloat = 0.5

    def loss(self, task: ActingTask, model: Tensor, rollout: Rollout) -> Tensor:
        """L of one actor's rollout under a model, float32 ``[d]``."""
        policy, value, after = self.evaluate_rollout(task, model, rollout)
        rewards = self.reward_scale * rollout.rewards
        returns = n_step_returns(rewards, after, rollout.terminated, rollout.truncated, self.gamma)
        chosen = task.policy.log_prob(policy, rollout.actions)
        actor = -chosen * (returns - value).detach() - self.entropy * task.policy.entropy(policy)
        return (actor + self.value * (returns - value).square()).mean()

    def evaluate_rollout(self, task: ActingTask, model: Tensor, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """The policy's outputs ``[T, B, outputs]``, the values ``[T, B]``, and those after each step, without gradient."""
        steps, copies = rollout.rewards.shape
        # One pass for both; the states after are no copy of the next states seen, as an episode may have ended between
        inputs = torch.cat([rollout.seen, rollout.after]).flatten(0, 1)
        policy, value = task.outputs(model, inputs)
        policy, value = policy.view(2 * steps, copies, -1)[:steps], value.view(2 * steps, copies)
        return policy, value[:steps], value[steps:].detach()

    def gradients(self, task: ActingTask, models: Tensor, rollouts: Sequence[Rollout]) -> Tensor:
        """float32 ``[n, d]``: clipped gradients of the loss of each actor's rollout under its own model, float32 ``[n, d]``."""
        return self.clip_gradients(self.slopes(task, models, rollouts))

    def slopes(self, task: ActingTask, models: Tensor, rollouts: Sequence[Rollout]) -> Tensor:
        """As `gradients`, but not clipped."""
        of_one = grad(lambda model, *parts: self.loss(task, model, Rollout(*parts)))
        found: Tensor = vmap(of_one)(models, *stack_rollouts(list(rollouts)).parts)
        return found

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return RunningCritics(setup, self)


class RunningCritics(RunningActors):
    """Actors that compute their gradients themselves."""

    def __init__(self, setup: AlgorithmSetup, algorithm: ActorCritic) -> None:
        super().__init__(setup)
        self.algorithm = algorithm

    def fill_rows(
        self, task: ActingTask, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout], rows: Tensor
    ) -> None:
        rows.copy_(-self.algorithm.gradients(task, models, rollouts))
