"""Double DQN from a prioritized replay: Ape-X's learner and actors (van Hasselt et al., 2016; Horgan et al., ICLR 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedguard.algorithms.rl.actors import Actors, RunningActors
from fedguard.algorithms.rl.epsilon_greedy import EpsilonGreedy
from fedguard.algorithms.rl.replay import Items, Reals, ReplayBuffer, importance, transitions
from fedguard.contracts import (
    ActingTask,
    AlgorithmSetup,
    CellContext,
    Choices,
    Environment,
    Fraction,
    NonNegativeFloat,
    Policy,
    PositiveInt,
    Rollout,
    RunningAlgorithm,
    Task,
)
from fedguard.contracts.channels import PRIORITIES, TRANSITIONS


@dataclass(frozen=True, kw_only=True)
class DoubleDQN(Actors):
    """Actors send transitions with priorities, and the learner learns what is best from those that surprise it most.

    $L = mean_j w_j (R_j + gamma^m Q'(s_j', argmax_a Q(s_j', a)) - Q(s_j, a_j))^2 / 2$ over a batch of the replay: the online
    network Q chooses the action, and the target network Q' evaluates it; Q' is Q of up to ``target_every`` batches ago.
    $R_j$ are the discounted rewards of m steps, n at most. Q is dueling: $Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)$.

    j is drawn with $P(j) = p_j^alpha / sum_k p_k^alpha$ and weighed with $w_j = (N P(j))^{-beta}$ over the largest weight of
    the batch. The actor reports the first priority $p_j$; each time j is drawn, the learner's own error replaces it.
    Actor i of n acts at random with probability $epsilon^{1 + spread i / (n - 1)}$, and greedily otherwise.

    Args:
        t_max: steps of a rollout, whose transitions are one message.
        gamma: the discount of what comes later.
        clip: the largest length of the learner's gradient; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them.
        n: steps that a transition looks ahead.
        batch: transitions of one gradient.
        capacity: transitions that the replay keeps.
        warm: how many it has before the learner starts.
        target_every: batches between copies of Q to Q'.
        epsilon, spread: how much actors try.
        priority_exponent: alpha, how much priorities decide; 0 for nothing.
        importance_exponent: beta, how much of that the weights take back; 1 for all.
        double: whether Q chooses; else Q' does.
        dueling: whether Q is made of V and A; else A is Q.
        recompute: whether the learner works out the first priorities, too; then nobody's word is taken.
        quota: transitions that the replay keeps of one actor; null for any number.
    """

    name = "double_dqn"
    source = "Horgan et al., Distributed Prioritized Experience Replay, ICLR 2018"
    replays = True
    learner = "apex"
    #: What the replay keeps, in a word.
    items: ClassVar[str] = "transitions"

    n: PositiveInt = 3
    batch: PositiveInt = 128
    capacity: PositiveInt = 20_000
    warm: PositiveInt = 1_000
    target_every: PositiveInt = 100
    epsilon: Fraction = 0.4
    spread: NonNegativeFloat = 7.0
    priority_exponent: NonNegativeFloat = 0.6
    importance_exponent: Fraction = 0.4
    double: bool = True
    dueling: bool = True
    recompute: bool = False
    quota: PositiveInt | None = None

    def reasons(self, cell: CellContext) -> Iterator[str]:
        yield from super().reasons(cell)
        if isinstance(cell.data, Environment) and not isinstance(cell.data.actions, Choices):
            yield f"{self.name} asks which of a few actions is best, and {cell.data.name} has a range. Use actor_critic."
        if self.quota is not None and self.quota * cell.clients.total < min(self.warm, self.capacity):
            yield (
                f"{self.name} starts with {min(self.warm, self.capacity)} {self.items}, and the replay keeps {self.quota} of "
                f"each of {cell.clients.total} actors. Raise quota, or lower warm."
            )

    def q(self, task: ActingTask, model: Tensor, seen: Tensor) -> Tensor:
        """Q of all actions, ``[B, actions]``."""
        return self.worth(*task.outputs(model, seen))

    def worth(self, advantages: Tensor, value: Tensor) -> Tensor:
        """Q of all actions, ``[..., actions]``, of the network's outputs and values ``[...]``."""
        if not self.dueling:
            return advantages
        return value[..., None] + advantages - advantages.mean(-1, keepdim=True)

    def errors(self, task: ActingTask, model: Tensor, target: Tensor, some: Any) -> Tensor:
        """float32 ``[B]``: the temporal-difference error of each item; gradients flow through Q(s, a) alone."""
        with torch.no_grad():
            # The semi-gradient of Q-learning: the target is a constant, though the online network chooses in it
            worth = self.q(task, target, some.after)
            chooser = self.q(task, model, some.after) if self.double and model is not target else worth
            worth = worth.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
        chosen = self.q(task, model, some.seen).gather(-1, some.actions[:, None]).squeeze(-1)
        wrong: Tensor = some.returns + some.discounts * worth - chosen
        return wrong

    def squares(self, errors: Tensor) -> Tensor:
        """float32 ``[B]``: the squared error of each item in the loss."""
        return errors.square()

    def surprise(self, errors: Tensor) -> Tensor:
        """float32 ``[B]``: the priority of each item."""
        return errors.abs()

    def gradient(
        self, task: ActingTask, model: Tensor, target: Tensor, some: Items, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient of L, float32 ``[d]``; and the errors ``[B]``."""
        vector = model.detach().requires_grad_()
        errors = self.errors(task, vector, target, some)
        (found,) = torch.autograd.grad((weights * self.squares(errors)).mean() / 2, vector)
        return self.clip_gradients(found[None])[0], errors.detach()

    def bytes_sent(self, task: Task) -> int:
        """For each step of each copy: two observations, action, return, discount and priority."""
        return self.t_max * task.sizes[0] * (2 * 4 * math.prod(task.shape) + 4 * 4)

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return ReplayLearner(setup, self)


class ReplayLearner(RunningActors):
    """The actors, their messages in transit, and the learner's replay and target network."""

    def __init__(self, setup: AlgorithmSetup, algorithm: DoubleDQN) -> None:
        super().__init__(setup)
        self.algorithm = algorithm
        self._sent: dict[int, dict[int, tuple[Items, Reals]]] = {}
        self._replay: ReplayBuffer[Items] = ReplayBuffer(algorithm.capacity, algorithm.quota)
        self._target: Tensor | None = None
        self._batches = 0

    def law(self, clients: Sequence[int]) -> Policy:
        one, others = self.algorithm, max(len(self.setup.task.sizes) - 1, 1)
        chances = torch.tensor([one.epsilon ** (1 + one.spread * client / others) for client in clients])
        return EpsilonGreedy(self.setup.task.classes - 1, chances[:, None])

    def items(self, task: ActingTask, client: int, rollout: Rollout) -> Items:
        """The replay items that an actor makes of a rollout."""
        return transitions(rollout, self.algorithm.n, self.algorithm.gamma, self.algorithm.reward_scale)

    def fill_rows(
        self, task: ActingTask, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout], rows: Tensor
    ) -> None:
        for (client, turn), model, rollout in zip(keys, models, rollouts, strict=True):
            found = self.items(task, client, rollout)
            told = task.report(PRIORITIES, client, self._surprise(model, model, found))
            order = task.report(TRANSITIONS, client, torch.arange(len(found)))
            self._sent.setdefault(client, {})[turn] = found[order], told[order].double().numpy()
        rows.zero_()

    def _surprise(self, model: Tensor, target: Tensor, some: Items) -> Tensor:
        task = self.setup.task
        assert isinstance(task, ActingTask)
        with torch.no_grad():
            return self.algorithm.surprise(self.algorithm.errors(task, model, target, some))

    def learn(self, keys: Sequence[tuple[int, int]], model: Tensor, rows: Tensor) -> None:
        for (client, turn), row in zip(keys, rows, strict=True):
            sent = self._sent[client]
            some, priorities = sent.pop(turn)
            for earlier in [one for one in sent if one < turn]:  # it never reached the learner
                del sent[earlier]
            if self.algorithm.recompute:
                # Before the first batch there is no Q' yet
                target = model if self._target is None else self._target
                priorities = self._surprise(model, target, some).double().numpy()
            self._replay.add(client, some, priorities)
            row.copy_(self._step(model))

    def _step(self, model: Tensor) -> Tensor:
        """float32 ``[d]``: the direction in which a batch of the replay moves the model; 0 before there is enough."""
        one, replay, task = self.algorithm, self._replay, self.setup.task
        assert isinstance(task, ActingTask)
        if len(replay) < min(one.warm, one.capacity):
            return torch.zeros_like(model)
        if self._target is None or self._batches % one.target_every == 0:
            self._target = model.clone()
        self._batches += 1
        draws = self.setup.rng.child("replay", self._batches).numpy()
        places, chances = replay.sample_indices(one.batch, one.priority_exponent, draws)
        weights = torch.from_numpy(importance(chances, len(replay), one.importance_exponent)).float()
        found, errors = one.gradient(task, model, self._target, replay.at(places), weights)
        replay.judge(places, one.surprise(errors).double().numpy())
        return -found
