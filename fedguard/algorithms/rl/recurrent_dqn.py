"""Double DQN over sequences, with a network that remembers: R2D2's learner and actors (Kapturowski et al., ICLR 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedguard.algorithms.rl.double_dqn import DoubleDQN, ReplayLearner
from fedguard.algorithms.rl.replay import Items, look_ahead
from fedguard.algorithms.rl.rescaling import invert_rescaling, rescale_values
from fedguard.algorithms.rl.sequences import Sequences, join_rollouts, last_steps, nothing_yet, sequences
from fedguard.contracts import (
    ActingTask,
    AlgorithmSetup,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Rollout,
    RunningAlgorithm,
    Task,
)
from fedguard.contracts.channels import MEMORIES


@dataclass(frozen=True, kw_only=True)
class RecurrentDQN(DoubleDQN):
    r"""As `double_dqn`, of sequences: ``burn_in`` steps are unrolled without gradient, and what follows is learned from.

    $L = mean_j w_j mean_t (y_{j,t} - Q(s_{j,t}, a_{j,t}; h_{j,t}))^2 / 2$ over the last ``t_max`` steps of each sequence of a
    batch, with $y_t = h(R_t + gamma^m h^{-1}(Q'(s_{t+m}, argmax_a Q(s_{t+m}, a))))$, where m is n at most, and less where the
    episode or the sequence is over before. $h_t$ is what each network remembers: Q and Q' each unroll the sequence from what
    the actor remembered before its first step, or from 0. No gradient flows into the burn-in.

    The priority of a sequence is $p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|$ with the errors
    $delta_t = y_t - Q(s_t, a_t)$. The actor reports the first priority, by the model with which it acted.

    An actor sends one sequence for each copy and rollout: its ``t_max`` steps, and the ``burn_in`` steps before them, so that
    each step is learned from in exactly one sequence. The source's sequences end with an episode. Here they continue into the
    next episode, and the network's memory is cleared between. Sequences overlap by ``burn_in`` steps; 40 and 40 is the
    source's setting.

    Args:
        t_max: steps of a rollout, and of what is learned from a sequence.
        gamma: the discount of what comes later.
        clip: the largest length of the learner's gradient; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them.
        n: steps that a target looks ahead.
        batch: sequences of one gradient.
        capacity: sequences that the replay keeps.
        warm: how many it has before the learner starts.
        target_every: batches between copies of Q to Q'.
        epsilon, spread: how much actors try.
        priority_exponent: alpha, how much priorities decide; 0 for nothing.
        importance_exponent: beta, how much of that the weights take back; 1 for all.
        double: whether Q chooses; else Q' does.
        dueling: whether Q is made of V and A; else A is Q.
        recompute: whether the learner works out the first priorities, too; then nobody's word is taken.
        quota: sequences that the replay keeps of one actor; null for any number.
        burn_in: steps that the network unrolls before those that it learns from.
        initial_state: ``stored`` for what the actor remembered before a sequence, ``zero`` for nothing.
        rescale: whether Q is learned on the scale of h (`fedguard.algorithms.rl.rescaling`); else h is the identity.
        largest_share: eta, what the largest error counts in a priority.
    """

    name = "recurrent_dqn"
    source = "Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning, ICLR 2019"
    sequences = True
    learner = "r2d2"
    items: ClassVar[str] = "sequences"

    n: PositiveInt = 5
    batch: PositiveInt = 32
    capacity: PositiveInt = 4_000
    warm: PositiveInt = 100
    priority_exponent: NonNegativeFloat = 0.9
    importance_exponent: Fraction = 0.6
    burn_in: NonNegativeInt = 10
    initial_state: Literal["stored", "zero"] = "stored"
    rescale: bool = True
    largest_share: Fraction = 0.9

    def errors(self, task: ActingTask, model: Tensor, target: Tensor, some: Sequences) -> Tensor:
        """float32 ``[B, t_max]``: the error of each step that is learned from; gradients flow through Q(s, a) alone."""
        given = some.in_time()
        learned = slice(self.burn_in, None)
        ends = (given.terminated[learned], given.truncated[learned])
        returns, discounts, last = look_ahead(given.rewards[learned], *ends, self.n, self.gamma)
        now, online = self.action_values(task, model, given)
        other = online if target is model else self.action_values(task, target, given)[1]
        best = (online if self.double else other).argmax(-1, keepdim=True)
        worth = other.gather(-1, best).squeeze(-1).gather(0, last)
        wanted = returns + discounts * (invert_rescaling(worth) if self.rescale else worth)
        chosen = now.gather(-1, given.actions[learned][..., None]).squeeze(-1)
        return ((rescale_values(wanted) if self.rescale else wanted).detach() - chosen).transpose(0, 1)

    def action_values(self, task: ActingTask, vector: Tensor, given: Sequences) -> tuple[Tensor, Tensor]:
        """Q of all actions before and after each step that is learned from, ``[t_max, B, actions]``; no gradient through the
        second.

        Args:
            given: with the steps in front.
        """
        starts, learned = given.starts(), slice(self.burn_in, None)
        memory = self.burn_in_memory(task, vector, given)
        outputs, values, memories = task.unroll_steps(vector, given.seen[learned], starts[learned], memory)
        # What is observed after a step belongs to the episode of that step, so the memory is not cleared before it
        after = given.after[learned].flatten(0, 1)
        following = task.outputs_from_memory(vector.detach(), after, memories.detach().flatten(0, 1))
        now = self.worth(outputs, values)
        return now, self.worth(*following[:2]).view(now.shape).detach()

    def burn_in_memory(self, task: ActingTask, vector: Tensor, given: Sequences) -> Tensor:
        """float32 ``[B, M]``: what is remembered before the first step that is learned from; no gradient flows to it."""
        memory = given.memory if self.initial_state == "stored" else torch.zeros_like(given.memory)
        if not self.burn_in:
            return memory
        first = slice(self.burn_in)
        return task.unroll_steps(vector.detach(), given.seen[first], given.starts()[first], memory)[2][-1].detach()

    def squares(self, errors: Tensor) -> Tensor:
        return errors.square().mean(1)

    def surprise(self, errors: Tensor) -> Tensor:
        sizes = errors.abs()
        return self.largest_share * sizes.amax(1) + (1 - self.largest_share) * sizes.mean(1)

    def bytes_sent(self, task: Task) -> int:
        """For each copy: observation, action, reward and a byte for the kind of end of each step; the last observation, the
        memory, and the priority."""
        assert isinstance(task, ActingTask)
        observation, steps = 4 * math.prod(task.shape), self.burn_in + self.t_max
        return task.sizes[0] * (steps * (observation + 4 + 4 + 1) + observation + 4 * task.memory + 4)

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _SequenceLearner(setup, self)


class _SequenceLearner(ReplayLearner):
    """As for transitions, with the last steps of each actor's last rollout that led to a message."""

    algorithm: RecurrentDQN

    def __init__(self, setup: AlgorithmSetup, algorithm: RecurrentDQN) -> None:
        super().__init__(setup, algorithm)
        self._past: dict[int, Rollout] = {}
        self._ahead: dict[int, Rollout] = {}

    def items(self, task: ActingTask, client: int, rollout: Rollout) -> Items:
        steps = self.algorithm.burn_in
        past = self._past.get(client)
        window = join_rollouts(nothing_yet(rollout, steps) if past is None else past, rollout)
        self._ahead[client] = last_steps(window, steps)
        made = sequences(window, self.algorithm.reward_scale)
        return replace(made, memory=task.report(MEMORIES, client, made.memory))

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        super().note(clients, rows)
        for client in clients:
            if client in self._ahead:
                self._past[client] = self._ahead.pop(client)
