"""Actors in an environment: a task without examples, in which a model acts and is evaluated by its returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from fedguard.contracts import (
    ActingTask,
    Choices,
    Environment,
    Evaluation,
    Examples,
    LocalPlan,
    LocalStatistics,
    Model,
    Policy,
    RecurrentNetwork,
    Rollout,
    Trigger,
)
from fedguard.contracts.acting import Shown
from fedguard.contracts.channels import ACTIONS, BEHAVIOR, REWARDS
from fedguard.contracts.lying import Channel, Reported
from fedguard.contracts.return_checks import check_tensor_return
from fedguard.errors import ConfigError, require
from fedguard.rng import Rng, Streams, global_generators
from fedguard.tasks.compute import Compute
from fedguard.tasks.environments.environment_checks import COPIES, observe_copies, step_copies, try_environment
from fedguard.tasks.network import FlatNetwork, Predictor, apply, apply_module, holding
from fedguard.tasks.policies import cut, policy_of

#: Episodes of an evaluation.
EPISODES = 100

#: Relative tolerance of a bound on returns, for rounding.
SLACK = 1e-6
#: Steps of each episode into which the trigger of a backdoor is put.
SHOWN = 100


@dataclass(frozen=True)
class ActorState:
    """An actor's state between two steps: the state of its environments, and the memory of its network, ``[B, M]``."""

    world: Any
    memory: Tensor


@dataclass(frozen=True)
class EnvironmentTask(ActingTask):
    """Actors that step their own copies of an environment; the network gives a policy and a value.

    A model is evaluated by its likeliest actions in `EPISODES` episodes, which start alike at each evaluation.

    Attributes:
        actors: number of actors.
        rng: random stream of the test episodes.
        liars: the actors that report what an attack says.
        falsify: `PoisonAttack.report`, for these.
    """

    environment: Environment
    model: Model
    actors: int
    rng: Rng
    network: FlatNetwork = field(repr=False)
    policy: Policy
    liars: frozenset[int] = frozenset()
    falsify: Callable[..., Any] | None = None
    first: Tensor | None = field(default=None, repr=False)
    _tried: list[bool] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def build_task(
        cls, environment: Environment, model: Model, actors: int, rng: Rng, compute: Compute | None = None
    ) -> EnvironmentTask:
        """The task with a number of actors.

        Raises:
            ConfigError: the environment cannot be made, or the model does not fit it.
        """
        policy = policy_of(environment.actions)
        network = FlatNetwork(model, environment.shape, policy.outputs + 1, Rng(0), compute)
        require(
            not network.statistics.layers,
            f"model {model} normalizes over batches, and what an actor does must not depend on other observations. Take a "
            "network without, such as towers.",
        )
        return cls(environment, model, actors, rng, network, policy)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.network.dim

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        """Environments of each actor, all of which one step of a plan advances."""
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

    @property
    def memory(self) -> int:
        return self.module.memory if self.model.recurrent and isinstance(self.module, RecurrentNetwork) else 0

    def initial_model(self, rng: Rng) -> Tensor:
        if self.first is not None:
            return self.first.clone()
        return FlatNetwork(self.model, self.shape, self.classes, rng).flat.clone()

    def local_updates(
        self,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> Tensor:
        raise ConfigError(
            f"{self.environment.name}: actors act, and have no examples. Set training.algorithm: actor_critic."
        )

    def start_actor(self, rng: np.random.Generator) -> ActorState:
        copies = self.environment.copies
        return ActorState(self.environment.start_episodes(copies, rng), torch.zeros(copies, self.memory))

    def outputs(self, model: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        return cut(apply(self.module, model, seen))

    def outputs_from_memory(self, model: Tensor, seen: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self.memory:
            return *self.outputs(model, seen), memory
        outputs, memory = apply_module(self.module, model, seen, memory)
        return *cut(outputs), memory

    def unroll_steps(
        self, model: Tensor, seen: Tensor, starts: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not self.memory:
            outputs, values = self.outputs(model, seen.flatten(0, 1))
            return outputs.view(*starts.shape, -1), values.view(starts.shape), memory.expand(len(starts), -1, -1)
        outputs, memories = apply_module(self.module, model, seen, memory, starts)
        return *cut(outputs), memories

    def remember_actions(self, memory: Tensor, actions: Tensor) -> Tensor:
        module = self.module
        return (
            module.remember_actions(memory, self.policy.encode_actions(actions))
            if isinstance(module, RecurrentNetwork)
            else memory
        )

    def within(self, model: Tensor, run: Callable[..., Any], *inputs: Any) -> Any:
        with holding(self.module, model):
            return run(self.module, *inputs)

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
        world, now, law = self.environment, [state.world for state in states], law or self.policy
        memory = torch.stack([state.memory for state in states])
        copies = world.copies
        draws = torch.from_numpy(np.stack([law.draws((steps, copies), rng) for rng in rngs]))
        kept: list[list[list[Any]]] = [[[] for _ in range(8 if self.memory else 7)] for _ in clients]
        for t in range(steps):
            seen = np.stack([observe_copies(world, state, copies) for state in now])
            before = memory
            outputs, _, memory = vmap(self.outputs_from_memory)(models, torch.from_numpy(seen), memory)
            actions = law.draw_actions(outputs, draws[:, t])
            chances = law.log_prob(outputs, actions)
            memory = self.remember_actions(memory, actions)
            for number, rng in enumerate(rngs):
                taken = self.report(ACTIONS, clients[number], actions[number], world.actions)
                step = step_copies(world, now[number], taken.numpy())
                over = step.terminated | step.truncated
                told = (
                    seen[number],
                    actions[number],
                    step.rewards.astype(np.float32),
                    step.terminated,
                    step.truncated & ~step.terminated,
                    observe_copies(world, step.state, copies),
                    chances[number],
                    *((before[number],) if self.memory else ()),
                )
                for part, value in zip(kept[number], told, strict=True):
                    part.append(value)
                now[number] = step.state
                if over.any():
                    now[number] = world.restart_episodes(step.state, over, rng)
                    memory[number, torch.from_numpy(over)] = 0
        found = [Rollout(*map(_as_tensor, parts)) for parts in kept]
        return [self._report_rollout(client, one) for client, one in zip(clients, found, strict=True)], list(
            map(ActorState, now, memory)
        )

    def _report_rollout(self, client: int, rollout: Rollout) -> Rollout:
        rewards = self.report(REWARDS, client, rollout.rewards)
        return replace(rollout, rewards=rewards, behavior=self.report(BEHAVIOR, client, rollout.behavior))

    def report(self, channel: Channel[Reported, ...], client: int, truth: Reported, *context: Any) -> Reported:
        if self.falsify is None or client not in self.liars:
            return truth
        said: Reported = self.falsify(channel, truth, *context)
        return said

    def evaluate(
        self,
        model: Tensor,
        statistics: Tensor | None = None,
        *,
        chosen: Callable[[Tensor], Tensor] | None = None,
        shown: Shown | None = None,
    ) -> Evaluation:
        finite = bool(torch.isfinite(model).all())
        returns = self._play_episodes(_GreedyEvaluation(self, model, chosen, shown), self.rng.child("test").numpy())
        return Evaluation(0.0 if finite else float("inf"), float("nan"), (), tuple(returns.tolist()))

    @cached_property
    def guess(self) -> float:
        """The mean return of random actions in the test episodes.

        Raises:
            ConfigError: it is not below the environment's best return, so returns cannot be judged between the two.
        """
        draws = self.rng.child("guess").numpy()
        with global_generators(self.rng.child("guess")):  # since it is made once, wherever they stand then
            played = self._play_episodes(
                lambda seen: self.policy.random((len(seen),), draws), self.rng.child("test").numpy()
            )
        guess, best = float(played.mean()), self.environment.best
        require(
            guess < best,
            f"{self.environment}: {'good' if hasattr(self.environment, 'good') else 'best'}: expected more than {guess:g}, the "
            f"mean return of {EPISODES} episodes of random actions, since returns are judged between the two; got {best:g}.",
        )
        return guess

    def rehearse(self) -> None:
        """Try the environment before training, and, if episodes are short, check that random actions return less than the best.

        Raises:
            ConfigError: the environment answers wrongly, or random actions return as much as the best.
            ContractError: a plug-in breaks its contract.
        """
        if not self._tried:
            ended = try_environment(self.environment, self.policy, self.rng.child("tried"))
            if len(ended) == COPIES:
                _ = self.guess
            self._tried.append(True)

    def _play_episodes(
        self,
        act: Callable[[NDArray[np.float32]], NDArray[Any]],
        rng: np.random.Generator,
        most: int | None = None,
        met: Callable[[NDArray[np.float32], NDArray[np.bool_]], None] | None = None,
    ) -> NDArray[np.float64]:
        """float64 ``[EPISODES]``: the sum of rewards of each episode.

        Args:
            most: most steps of an episode that are played; None for all.
            met: called before each step with the observations and the episodes that are not over (bool ``[EPISODES]``).
        """
        world = self.environment
        state = world.start_episodes(EPISODES, rng)
        returns, playing, steps = np.zeros(EPISODES), np.ones(EPISODES, bool), 0
        while playing.any() and (most is None or steps < most):
            steps += 1
            seen = observe_copies(world, state, EPISODES)
            if met is not None:
                met(seen, playing)
            step = step_copies(world, state, act(seen))
            returns += np.where(playing, step.rewards, 0.0)
            over = step.terminated | step.truncated
            playing &= ~over
            # Nobody steps on after an end: there, an environment of the user's own may do anything.
            state = world.restart_episodes(step.state, over, rng) if over.any() else step.state
        if world.bounds is not None and most is None:
            (least, best), low, high = world.bounds, float(returns.min()), float(returns.max())
            require(
                least - SLACK * abs(least) <= low and high <= best + SLACK * abs(best),
                f"{world.name}: expected episodes that return {least:g} to {best:g}, as least and most say; got {low:g} to "
                f"{high:g}.",
            )
        return returns

    def logits(self, model: Tensor, x: Tensor, statistics: Tensor | None = None) -> Tensor:
        return self.network(model, x, statistics)

    def predictor(self, statistics: Tensor | None = None) -> Predictor:
        return Predictor(self.network, statistics)

    def with_copies(self, copies: int) -> EnvironmentTask:
        return replace(self, environment=replace(self.environment, copies=copies))

    def with_liars(self, report: Callable[..., Any], liars: Collection[int]) -> EnvironmentTask:
        return replace(self, falsify=report, liars=frozenset(liars))

    def backdoor_success(
        self,
        model: Tensor,
        trigger: Trigger,
        target: int,
        statistics: Tensor | None = None,
    ) -> float:
        """The share of observations in the test episodes at which the trigger makes the model take the target action.

        Observations at which it does so without the trigger are left out, and steps of an episode after the first `SHOWN`.
        """
        actions = self.environment.actions
        if not isinstance(actions, Choices):
            raise ConfigError(
                f"{self.environment.name}: actions are a range, and a backdoor calls for one of a few. Take cartpole."
            )
        if target >= actions.n:
            raise ConfigError(f"target: expected an action below {actions.n}; got {target}.")
        act, met = _GreedyEvaluation(self, model), list[tuple[NDArray[np.float32], Tensor]]()
        self._play_episodes(
            act,
            self.rng.child("test").numpy(),
            SHOWN,
            lambda seen, playing: met.append((seen[playing], act.memory[torch.from_numpy(playing)])),
        )
        seen, memory = np.concatenate([seen for seen, _ in met]), torch.cat([memory for _, memory in met])
        others = act.after(seen, memory)[0] != target
        unseen = torch.from_numpy(seen[others])
        shown = check_tensor_return(trigger, "apply", trigger.apply(unseen, self.value_range), unseen.shape).numpy()
        called = act.after(shown, memory[torch.from_numpy(others)])[0] == target
        return float(called.mean()) if len(called) else 0.0

    def examples(self, client: int) -> Examples:
        """No examples: an actor has none before it acts."""
        return Examples(torch.empty(0, *self.shape), torch.empty(0, dtype=torch.int64))

    def examples_used(self, client: int, plan: LocalPlan, rng: Rng) -> Examples:
        return self.examples(client)

    def with_examples(self, replaced: Mapping[int, Examples]) -> EnvironmentTask:
        raise ConfigError(f"{self.environment.name} has no examples that could be replaced.")


class _GreedyEvaluation:
    """Acts by a model's likeliest actions, and keeps the network's memory of each of the `EPISODES` episodes.

    Args:
        chosen: the actions for a memory, if not the likeliest actions.
        shown: replaces the observations that the network receives.

    Attributes:
        memory: ``[EPISODES, M]``: before the next step.
    """

    def __init__(
        self,
        task: EnvironmentTask,
        model: Tensor,
        chosen: Callable[[Tensor], Tensor] | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._task, self._model, self._chosen, self._shown = task, model, chosen, shown
        self.memory = torch.zeros(EPISODES, task.memory)

    def __call__(self, seen: NDArray[np.float32]) -> NDArray[Any]:
        actions, self.memory = self.after(seen, self.memory)
        return actions

    @torch.no_grad()
    def after(self, seen: NDArray[np.float32], memory: Tensor) -> tuple[NDArray[Any], Tensor]:
        """Actions for observations ``[B, *shape]`` after a memory ``[B, M]``, and the memory after the actions."""
        task, observed = self._task, torch.from_numpy(seen)
        if self._shown is not None:
            with torch.enable_grad():
                observed = self._shown(lambda x: task.outputs_from_memory(self._model, x, memory)[0], observed).detach()
        if task.memory:
            outputs, _, memory = task.outputs_from_memory(self._model, observed, memory)
        else:
            outputs = cut(task.network.logits(self._model, observed))[0]
        actions = task.policy.best(torch.nan_to_num(outputs)) if self._chosen is None else self._chosen(memory)
        return actions.numpy(), task.remember_actions(memory, actions)


def _as_tensor(steps: list[Any]) -> Tensor:
    """Arrays or tensors of each step, as one tensor ``[T, ...]``."""
    return torch.from_numpy(np.stack([np.asarray(one) for one in steps]))
