"""Dreamer: a model of the world from a replay, and an actor and a critic from what it imagines (Hafner et al., ICLR 2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from fedguard.algorithms.rl.actors import Actors, RunningActors
from fedguard.algorithms.rl.imagination import Dream, Weights, imagine_rollout, lambda_returns, world_loss
from fedguard.algorithms.rl.planning import plan_first_actions
from fedguard.algorithms.rl.replay import ReplayBuffer
from fedguard.algorithms.rl.sequences import Sequences, sequences
from fedguard.contracts import (
    ActingTask,
    AlgorithmSetup,
    CellContext,
    Choices,
    Environment,
    Evaluation,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Rollout,
    RunningAlgorithm,
    Task,
    WorldModel,
)
from fedguard.contracts.channels import TRANSITIONS
from fedguard.contracts.tasks import select_trained
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Dreaming(Actors):
    r"""Actors send sequences, and the learner learns what follows from actions, and what is best in what it imagines.

    A gradient has three parts, each of which moves only its own parameters: world model, actor and critic. The world model's
    loss is computed on a batch of the replay (`fedguard.algorithms.rl.imagination`). From posterior states of that batch, the
    actor acts for H steps in what the prior predicts, and minimizes
    $-mean_k w_k V_k - beta H(pi)$; the critic minimizes $mean_k w_k (v(s_k) - V_k)^2 / 2$. $V_k$ are the lambda-returns
    of predicted rewards and values, with $c_k = gamma p_k$ for the probability $p_k$ that the episode continues, and
    $w_k = c_0 ... c_{k-1}$; their values come from the critic of up to ``target_every`` batches ago. The actor's gradient
    flows through the world model, so actions must be a range.

    Actors draw their actions by the policy, and send a sequence for each copy and rollout. Evaluations take the actor's
    likeliest action; with ``planning``, the best action in the world model (`fedguard.algorithms.rl.planning`).

    Args:
        t_max: steps of a rollout, and of a sequence.
        gamma: the discount of what comes later.
        clip: the largest length of the learner's gradient; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them.
        batch: sequences of one gradient.
        capacity: sequences that the replay keeps.
        warm: how many it has before the learner starts.
        target_every: batches between copies of the critic.
        horizon: H, steps of a dream.
        dreams: how many start from the states of a batch.
        share: lambda, how much of a return is what was imagined, and not the value of the next state.
        entropy: beta, what trying much is worth.
        free: nats of a divergence between prior and posterior that cost nothing.
        prior_weight: what the divergence counts for the prior.
        posterior_weight: what it counts for the posterior.
        quota: sequences that the replay keeps of one actor; null for any number.
        planning: steps of the plans by which a model acts when it is evaluated; 0 where its actor does.
        candidates: plans that are tried at once.
        best: how many of them the next ones are drawn around.
        iterations: how often that is done for each step.
    """

    name = "dreaming"
    source = "Hafner et al., Dream to Control: Learning Behaviors by Latent Imagination, ICLR 2020"
    replays = True
    sequences = True
    imagines = True
    learner = "dreamer"

    t_max: PositiveInt = 16
    gamma: Fraction = 0.97
    batch: PositiveInt = 16
    capacity: PositiveInt = 4_000
    warm: PositiveInt = 50
    target_every: PositiveInt = 50
    horizon: PositiveInt = 12
    dreams: PositiveInt = 128
    share: Fraction = 0.95
    entropy: NonNegativeFloat = 0.001
    free: NonNegativeFloat = 1.0
    prior_weight: NonNegativeFloat = 0.5
    posterior_weight: NonNegativeFloat = 0.1
    quota: PositiveInt | None = None
    planning: NonNegativeInt = 0
    candidates: PositiveInt = 64
    best: Annotated[int, Ge(2)] = 8
    iterations: PositiveInt = 4

    later: ClassVar[dict[str, Any]] = {**Actors.later, "planning": 0, "candidates": 64, "best": 8, "iterations": 4}

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.best <= self.candidates,
            f"{self.name}: best: expected at most the {self.candidates} candidates; got {self.best}.",
        )

    def reasons(self, cell: CellContext) -> Iterator[str]:
        yield from super().reasons(cell)
        if isinstance(cell.data, Environment) and isinstance(cell.data.actions, Choices):
            yield (
                f"the actor of {self.name} learns by gradients through what it does, and {cell.data.name} has a few actions to "
                "choose from. Use recurrent_dqn, or an environment whose actions are a range, such as pendulum."
            )
        if self.quota is not None and self.quota * cell.clients.total < min(self.warm, self.capacity):
            yield (
                f"{self.name} starts with {min(self.warm, self.capacity)} sequences, and the replay keeps {self.quota} of each "
                f"of {cell.clients.total} actors. Raise quota, or lower warm."
            )

    def gradient(
        self, task: ActingTask, model: Tensor, target: Tensor, some: Sequences, rng: np.random.Generator
    ) -> Tensor:
        """The gradient of the three losses together, float32 ``[d]``.

        Args:
            target: the model with the critic that values states.
        """
        vector = model.detach().requires_grad_()
        loss = sum(self.losses(task, vector, target, some, rng))
        assert isinstance(loss, Tensor)
        (found,) = torch.autograd.grad(loss, vector)
        return self.clip_gradients(found[None])[0]

    def losses(
        self, task: ActingTask, vector: Tensor, target: Tensor, some: Sequences, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The losses of world model, actor and critic; the gradient of each flows to its part of the vector alone."""
        given, net, normal = some.in_time(), _net(task), _NormalStream(rng, vector.dtype)
        heard = task.policy.encode_actions(given.actions)
        noise = normal(2, *given.rewards.shape, net.chance)
        weights = Weights(self.free, self.prior_weight, self.posterior_weight)
        world, states = task.within(_only(task, vector, "world"), world_loss, given, heard, noise, weights)
        starts = states.detach().flatten(0, 1)
        starts = starts[torch.from_numpy(rng.permutation(len(starts))[: self.dreams])]
        of_states = normal(self.horizon, len(starts), net.chance)
        of_actions = normal(self.horizon, len(starts), task.policy.numbers)
        dream = task.within(_only(task, vector, "actor"), imagine_rollout, task.policy, starts, of_states, of_actions)
        returns, weight = self.returns(task, target, dream)
        actor = -(weight * returns).mean() - self.entropy * task.policy.entropy(dream.outputs).mean()
        values = task.within(_only(task, vector, "critic"), _evaluate_states, dream.states[:-1].detach())
        critic = (weight * (values - returns.detach()).square()).mean() / 2
        return world, actor, critic

    def returns(self, task: ActingTask, target: Tensor, dream: Dream) -> tuple[Tensor, Tensor]:
        """The lambda-returns of dreams, and the weight of each step, ``[H, N]``; no gradient flows to the weights."""
        values = task.within(target.detach(), _evaluate_states, dream.states)
        discounts = self.gamma * dream.lasts
        counts = torch.cat([torch.ones_like(discounts[:1]), discounts[:-1]]).detach().cumprod(0)
        return lambda_returns(dream.rewards, discounts, values, self.share), counts

    def bytes_sent(self, task: Task) -> int:
        """For each copy: observation, action, reward and a byte for the kind of end of each step; and the last observation."""
        assert isinstance(task, ActingTask)
        observation = 4 * math.prod(task.shape)
        return task.sizes[0] * (self.t_max * (observation + 4 * task.policy.numbers + 4 + 1) + observation)

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _DreamerLearner(setup, self)


def _net(task: ActingTask) -> WorldModel:
    net = task.module
    assert isinstance(net, WorldModel)
    return net


def _evaluate_states(net: WorldModel, states: Tensor) -> Tensor:
    found: Tensor = net.critic(states)
    return found.squeeze(-1)


def _only(task: ActingTask, vector: Tensor, part: str) -> Tensor:
    """The vector, through which gradients flow to one part of it alone: ``world``, ``actor`` or ``critic``."""
    named = select_trained(_net(task))
    parts = []
    for name, piece in zip(named, torch.split(vector, [one.numel() for one in named.values()]), strict=True):
        head = name.partition(".")[0]
        parts.append(piece if (head if head in ("actor", "critic") else "world") == part else piece.detach())
    return torch.cat(parts)


@dataclass(frozen=True)
class _NormalStream:
    """Normal numbers of a shape, from a stream."""

    rng: np.random.Generator
    dtype: torch.dtype

    def __call__(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape)).to(self.dtype)


class _DreamerLearner(RunningActors):
    """The actors, their messages in transit, and the learner's replay and earlier critic."""

    def __init__(self, setup: AlgorithmSetup, algorithm: Dreaming) -> None:
        super().__init__(setup)
        self.algorithm = algorithm
        self._sent: dict[int, dict[int, Sequences]] = {}
        self._replay: ReplayBuffer[Sequences] = ReplayBuffer(algorithm.capacity, algorithm.quota)
        self._target: Tensor | None = None
        self._batches = 0

    def fill_rows(
        self, task: ActingTask, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout], rows: Tensor
    ) -> None:
        for (client, turn), rollout in zip(keys, rollouts, strict=True):
            found = sequences(replace(rollout, memory=None), self.algorithm.reward_scale)
            order = task.report(TRANSITIONS, client, torch.arange(len(found)))
            self._sent.setdefault(client, {})[turn] = found[order]
        rows.zero_()

    def evaluate(self, model: Tensor, statistics: Tensor | None = None) -> Evaluation:
        one, task = self.algorithm, self.setup.task
        assert isinstance(task, ActingTask)
        if not one.planning:
            return task.evaluate(model, statistics)
        net, normal = _net(task), _NormalStream(self.setup.rng.child("plan").numpy(), model.dtype)
        plan = partial(
            plan_first_actions,
            horizon=one.planning,
            candidates=one.candidates,
            best=one.best,
            iterations=one.iterations,
        )

        def choose_actions(memory: Tensor) -> Tensor:
            found: Tensor = task.within(model, plan, task.policy, memory[:, : net.fixed + net.chance], normal)
            return found

        return task.evaluate(model, statistics, chosen=choose_actions)

    def learn(self, keys: Sequence[tuple[int, int]], model: Tensor, rows: Tensor) -> None:
        for (client, turn), row in zip(keys, rows, strict=True):
            sent = self._sent[client]
            some = sent.pop(turn)
            for earlier in [one for one in sent if one < turn]:  # it never reached the learner
                del sent[earlier]
            self._replay.add(client, some, np.zeros(len(some)))
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
        places, _ = replay.sample_indices(one.batch, 0.0, draws)
        return -one.gradient(task, model, self._target, replay.at(places), draws)
