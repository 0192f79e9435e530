"""Actors in an environment: a task without examples, whose model acts and is judged by what its episodes return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from fedguard.contracts import Acting, Environment, Evaluation, Examples, LocalPlan, Model, Policy, Rollout, Trigger
from fedguard.errors import ConfigError
from fedguard.rng import Rng, Streams
from fedguard.tasks.compute import Compute
from fedguard.tasks.network import Network, Predictor, apply
from fedguard.tasks.policies import cut, policy_of

#: Episodes of an evaluation.
EPISODES = 100

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Playing(Acting):
    """Actors that each step copies of an environment of their own; the network gives a policy and a value.

    A model is evaluated in `EPISODES` episodes that start alike at each evaluation, by its likeliest actions.

    Attributes:
        actors: how many.
        rng: of the test episodes.
        lies: what becomes of what actors say, see `Task.with_lies`.
    """

    environment: Environment
    model: Model
    actors: int
    rng: Rng
    network: Network = field(repr=False)
    policy: Policy
    lies: Mapping[str, Mapping[int, Change]] = field(default_factory=dict)

    @classmethod
    def made(
        cls, environment: Environment, model: Model, actors: int, rng: Rng, compute: Compute | None = None
    ) -> Playing:
        """The task of so many actors.

        Raises:
            ConfigError: the environment cannot be made, or the model does not fit it.
        """
        policy = policy_of(environment.actions)
        network = Network(model, environment.shape, policy.outputs + 1, Rng(0), compute)
        return cls(environment, model, actors, rng, network, policy)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.network.dim

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        """Environments of each actor: what one step of a plan passes over."""
        return (self.environment.copies,) * self.actors

    @property
    def classes(self) -> int:  # type: ignore[override]
        """Outputs of the network: the policy's and the value."""
        return self.policy.outputs + 1

    @property
    def value_range(self) -> tuple[float, float]:  # type: ignore[override]
        return (-float("inf"), float("inf"))

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.environment.shape

    @property
    def layers(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.network.layers

    @property
    def module(self) -> nn.Module:  # type: ignore[override]
        return self.network.module

    def initial_model(self, rng: Rng) -> Tensor:
        return Network(self.model, self.shape, self.classes, rng).flat.clone()

    def local_updates(
        self, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, out: Tensor
    ) -> Tensor:
        raise ConfigError(
            f"{self.environment.name}: actors act, and have no examples. Set training.algorithm: actor_critic."
        )

    def started(self, rng: np.random.Generator) -> Any:
        return self.environment.started(self.environment.copies, rng)

    def outputs(self, model: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        return cut(apply(self.module, model, seen))

    @torch.no_grad()
    def rollouts(
        self,
        models: Tensor,
        clients: Sequence[int],
        states: Sequence[Any],
        steps: int,
        rngs: Sequence[np.random.Generator],
        law: Policy | None = None,
    ) -> tuple[list[Rollout], list[Any]]:
        world, now, law = self.environment, list(states), law or self.policy
        copies = world.copies
        draws = torch.from_numpy(np.stack([law.draws((steps, copies), rng) for rng in rngs]))
        kept: list[list[list[Any]]] = [[[] for _ in range(7)] for _ in clients]
        for t in range(steps):
            seen = np.stack([world.observed(state) for state in now])
            outputs = vmap(self.outputs)(models, torch.from_numpy(seen))[0]
            actions = law.drawn(outputs, draws[:, t])
            chances = law.log_prob(outputs, actions)
            for number, rng in enumerate(rngs):
                step = world.stepped(now[number], actions[number].numpy())
                over = step.terminated | step.truncated
                told = (
                    seen[number],
                    actions[number],
                    step.rewards.astype(np.float32),
                    step.terminated,
                    step.truncated & ~step.terminated,
                    world.observed(step.state),
                    chances[number],
                )
                for part, value in zip(kept[number], told, strict=True):
                    part.append(value)
                now[number] = world.restarted(step.state, over, rng) if over.any() else step.state
        found = [Rollout(*map(_as_tensor, parts)) for parts in kept]
        return [self._told(client, one) for client, one in zip(clients, found, strict=True)], now

    def _told(self, client: int, rollout: Rollout) -> Rollout:
        rewards = self.said("rewards", client, rollout.rewards)
        return replace(rollout, rewards=rewards, behaviour=self.said("behaviour", client, rollout.behaviour))

    def said(self, what: str, client: int, truth: Tensor) -> Tensor:
        lie = self.lies.get(what, {}).get(client)
        return truth if lie is None else lie(truth)

    def evaluate(self, model: Tensor) -> Evaluation:
        finite = bool(torch.isfinite(model).all())

        def best(seen: NDArray[np.float32]) -> NDArray[Any]:
            outputs = cut(self.network.logits(model, torch.from_numpy(seen)))[0]
            return self.policy.best(torch.nan_to_num(outputs)).numpy()

        returns = self._played(best, self.rng.child("test").numpy())
        return Evaluation(0.0 if finite else float("inf"), float("nan"), (), tuple(returns.tolist()))

    @cached_property
    def guess(self) -> float:
        """The mean return of one who acts at random, in the test episodes."""
        draws = self.rng.child("guess").numpy()
        played = self._played(lambda seen: self.policy.random((len(seen),), draws), self.rng.child("test").numpy())
        return float(played.mean())

    def _played(
        self, act: Callable[[NDArray[np.float32]], NDArray[Any]], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """float64 ``[EPISODES]``: the sum of rewards of each episode."""
        world = self.environment
        state = world.started(EPISODES, rng)
        returns, playing = np.zeros(EPISODES), np.ones(EPISODES, bool)
        while playing.any():
            step = world.stepped(state, act(world.observed(state)))
            returns += np.where(playing, step.rewards, 0.0)
            playing &= ~(step.terminated | step.truncated)
            state = step.state
        return returns

    def logits(self, model: Tensor, x: Tensor) -> Tensor:
        return self.network(model, x)

    def predictor(self) -> Predictor:
        return Predictor(self.network)

    def with_lies(self, lies: Mapping[str, Mapping[int, Change]]) -> Playing:
        return replace(self, lies=lies)

    def backdoor_success(self, model: Tensor, trigger: Trigger, target: int) -> float:
        raise ConfigError(f"{self.environment.name} has no test examples that could carry a trigger.")

    def examples(self, client: int) -> Examples:
        """None: what an actor learns from is not there before it acts."""
        return Examples(torch.empty(0, *self.shape), torch.empty(0, dtype=torch.int64))

    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        return self.examples(client)

    def with_examples(self, replaced: Mapping[int, Examples]) -> Playing:
        raise ConfigError(f"{self.environment.name} has no examples that could be replaced.")


def _as_tensor(steps: list[Any]) -> Tensor:
    """Arrays or tensors of each step, as one tensor ``[T, ...]``."""
    return torch.from_numpy(np.stack([np.asarray(one) for one in steps]))
