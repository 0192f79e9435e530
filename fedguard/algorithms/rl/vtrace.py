"""V-trace: a learner corrects the trajectories of actors that acted by older models (IMPALA; Espeholt et al., ICML 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap

from fedguard.algorithms.rl.actor_critic import ActorCritic
from fedguard.algorithms.rl.actors import RunningActors
from fedguard.algorithms.rl.rollouts import stack_rollouts
from fedguard.contracts import ActingTask, AlgorithmSetup, PositiveFloat, Rollout, RunningAlgorithm, Task
from fedguard.contracts.acting import unflatten_rollout


@dataclass(frozen=True, kw_only=True)
class VTrace(ActorCritic):
    """Actors send trajectories with what they say of their probabilities, and the learner works out the gradients.

    $L = mean_t [-rho_t log pi(a_t | s_t) (r_t + gamma v_{t+1} - V(s_t)) - beta H(pi(. | s_t)) + c (v_t - V(s_t))^2]$ at the
    learner's current model, with the targets $v_t$ of `v_trace`. $rho_t = pi(a_t | s_t) / mu(a_t | s_t)$, at most ``rho``,
    where mu is the probability of its action that the actor reports. All else is as in `actor_critic`.

    Args:
        rho: the largest $rho_t$; null for no limit.
        trace: the largest factor of a trace; null for no limit.
        recompute: whether the learner works out mu itself, from the model that it sent; then nothing is believed.
    """

    name = "vtrace"
    source = "Espeholt et al., IMPALA: Scalable Distributed Deep-RL, ICML 2018"

    corrects = True

    rho: PositiveFloat | None = 1.0
    trace: PositiveFloat | None = 1.0
    recompute: bool = False

    def loss(self, task: ActingTask, model: Tensor, rollout: Rollout) -> Tensor:
        policy, value, after = self.evaluate_rollout(task, model, rollout)
        chosen = task.policy.log_prob(policy, rollout.actions)
        # By logarithms, as both probabilities may be tiny; the weight is a constant of the loss
        ratio = (chosen.detach() - rollout.behavior).exp()
        rewards, ends = self.reward_scale * rollout.rewards, (rollout.terminated, rollout.truncated)
        targets, advantages = v_trace(ratio, rewards, value.detach(), after, *ends, self.gamma, self.rho, self.trace)
        actor = -chosen * advantages - self.entropy * task.policy.entropy(policy)
        return (actor + self.value * (targets - value).square()).mean()

    def bytes_sent(self, task: Task) -> int:
        """For each step of each copy: observation, action, reward, probability, and a byte for the kind of end; and the last
        observation."""
        assert isinstance(task, ActingTask)
        observation, copies = 4 * math.prod(task.shape), task.sizes[0]
        return copies * (self.t_max * (observation + 4 * task.policy.numbers + 4 + 4 + 1) + observation)

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _Trajectories(setup, self)


def v_trace(
    ratio: Tensor,
    rewards: Tensor,
    values: Tensor,
    after: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float,
    rho: float | None,
    trace: float | None,
) -> tuple[Tensor, Tensor]:
    r"""The targets $v_t$ and the advantages $rho_t (r_t + gamma v_{t+1} - V(s_t))$, each ``[T, ...]``.

    $v_t = V(s_t) + delta_t + gamma c_t (v_{t+1} - V(s_{t+1}))$ with $delta_t = rho_t (r_t + gamma V(s_{t+1}) - V(s_t))$,
    $rho_t = min(rho, pi / mu)$ and $c_t = min(trace, pi / mu)$. If the rollout ends or the episode was truncated,
    $v_{t+1} = V(s_{t+1})$ of the state there; if the episode terminated, both are 0.

    Args:
        ratio: $pi(a_t | s_t) / mu(a_t | s_t)$, ``[T, ...]``.
        values: $V(s_t)$; after: $V$ of the state after each step, before any new start.
        gamma: the discount.
        rho, trace: the largest ratio; None for no limit.

    Source: Espeholt et al., ICML 2018, equation 1 and remark 1.
    """
    rhos = ratio if rho is None else ratio.clamp(max=rho)
    traces = ratio if trace is None else ratio.clamp(max=trace)
    follows = torch.where(terminated, torch.zeros_like(after), after)
    deltas = rhos * (rewards + gamma * follows - values)
    # `more` is v_{t+1} - V(s_{t+1}); it is 0 after each end, where v_{t+1} is the critic's value of a state cut off, or 0
    more, targets, nexts = torch.zeros_like(after[-1]), [], []
    for t in range(len(rewards) - 1, -1, -1):
        more = torch.where(terminated[t] | truncated[t], torch.zeros_like(more), more)
        nexts.append(follows[t] + more)
        more = deltas[t] + gamma * traces[t] * more
        targets.append(values[t] + more)
    return torch.stack(targets[::-1]), rhos * (rewards + gamma * torch.stack(nexts[::-1]) - values)


class _Trajectories(RunningActors):
    """Keeps what the actors sent until the learner has learned from it."""

    def __init__(self, setup: AlgorithmSetup, algorithm: VTrace) -> None:
        super().__init__(setup)
        self.algorithm = algorithm
        self._sent: dict[tuple[int, int], Rollout] = {}

    def fill_rows(
        self, task: ActingTask, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout], rows: Tensor
    ) -> None:
        if self.algorithm.recompute:
            some = stack_rollouts(rollouts)
            logs = vmap(lambda model, seen: task.outputs(model, seen.flatten(0, 1))[0])(models, some.seen)
            likely = task.policy.log_prob(logs.view(*some.rewards.shape, -1), some.actions)
            rollouts = [replace(one, behavior=own) for one, own in zip(rollouts, likely, strict=True)]
        self._sent.update(zip(keys, rollouts, strict=True))
        rows.copy_(-self.algorithm.gradients(task, models, rollouts))

    def pack_message(self, key: tuple[int, int], row: Tensor) -> Tensor:
        """The trajectory, one part after the other."""
        return torch.cat([part.float().flatten() for part in self._sent.pop(key).parts])

    def receive_message(self, key: tuple[int, int], sent: Tensor, row: Tensor) -> None:
        task = self.setup.task
        assert isinstance(task, ActingTask)
        self._sent[key] = unflatten_rollout(sent, self.algorithm.t_max, task.sizes[0], task.shape, task.policy)
        row.zero_()  # what the learner makes of it comes in its place

    def learn(self, keys: Sequence[tuple[int, int]], model: Tensor, rows: Tensor) -> None:
        task = self.setup.task
        assert isinstance(task, ActingTask)
        rollouts = [self._sent.pop(key) for key in keys]
        rows.copy_(-self.algorithm.gradients(task, model.expand(len(keys), -1), rollouts))
