"""Advantage actor-critic: actors send the gradients of a few steps each (Mnih et al., ICML 2016)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedguard.architectures.local.rollouts import n_step_returns, stacked
from fedguard.contracts import (
    Acting,
    Combination,
    Environment,
    FederatedAlgorithm,
    Fraction,
    LocalPlan,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Rollout,
    RunningAlgorithm,
    Setup,
    Task,
    Training,
)
from fedguard.errors import require
from fedguard.rng import Rng, Streams


@dataclass(frozen=True, kw_only=True)
class ActorCritic(FederatedAlgorithm):
    """Each actor takes ``t_max`` steps by the model that it pulled, and sends the negative gradient of its loss.

    $L = mean_t [-log pi(a_t | s_t) (R_t - V(s_t)) - beta H(pi(. | s_t)) + c (R_t - V(s_t))^2]$ over the steps of all copies of
    its environment, with the returns $R_t = r_t + gamma R_{t+1}$ that the value of the last state ends
    (`fedguard.architectures.local.rollouts.n_step_returns`). No gradient flows through $R_t$, nor through the advantage in the
    first term. The server adds ``lr * server_lr`` times the aggregate, or what its optimizer makes of it: the source's RMSProp
    with shared statistics is ``server_optimizer: {name: adam, beta1: 0}``.

    An actor's episodes go on from one rollout to the next. One network gives policy and value.

    Args:
        t_max: steps of a rollout.
        gamma: the discount of what comes later.
        entropy: beta, what the spread of the policy is worth.
        value: c, what the critic's error counts.
        clip: the largest length of a gradient that an honest actor sends; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them, so that returns are of a size that the
            critic reaches. It moves no optimum, and no figure: what is reported are the environment's rewards.
    """

    name = "actor_critic"
    source = "Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, ICML 2016"
    only_updates = True
    acts = True
    keeps = "the state of its environments"

    t_max: PositiveInt = 5
    gamma: Fraction = 0.99
    entropy: NonNegativeFloat = 0.01
    value: NonNegativeFloat = 0.5
    clip: PositiveFloat | None = None
    reward_scale: PositiveFloat = 1.0

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; rewards that are left as they are go without saying, as before there was a scale."""
        return {key: value for key, value in super().spec().items() if (key, value) != ("reward_scale", 1.0)}

    def check(self, training: Training) -> None:
        require(
            not training.momentum and training.local_epochs == 1 and not training.local_steps,
            "actor_critic sends one gradient of a rollout, so local_epochs, local_steps and momentum do not apply; set t_max "
            "for longer rollouts.",
        )

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        if not isinstance(cell.data, Environment):
            yield (
                f"actor_critic learns from acting, and {cell.data.name} is a data set. Set task.data to an environment such as "
                "cartpole, or use fedsgd."
            )

    def plan(self, training: Training) -> LocalPlan:
        return LocalPlan(lr=1.0, epochs=self.t_max)

    def server_step(self, training: Training) -> float:
        return training.server_lr * training.lr

    def lr_alone(self, training: Training) -> float:
        return self.server_step(training)

    def loss(self, task: Acting, model: Tensor, rollout: Rollout) -> Tensor:
        """L of one actor's rollout under a model, float32 ``[d]``."""
        policy, value, after = self.judged(task, model, rollout)
        rewards = self.reward_scale * rollout.rewards
        returns = n_step_returns(rewards, after, rollout.terminated, rollout.truncated, self.gamma)
        chosen = task.policy.log_prob(policy, rollout.actions)
        actor = -chosen * (returns - value).detach() - self.entropy * task.policy.entropy(policy)
        return (actor + self.value * (returns - value).square()).mean()

    def judged(self, task: Acting, model: Tensor, rollout: Rollout) -> tuple[Tensor, Tensor, Tensor]:
        """The policy's outputs ``[T, B, outputs]``, the values ``[T, B]``, and those after each step, without gradient."""
        steps, copies = rollout.rewards.shape
        inputs = torch.cat([rollout.seen, rollout.after]).flatten(0, 1)
        policy, value = task.outputs(model, inputs)
        policy, value = policy.view(2 * steps, copies, -1)[:steps], value.view(2 * steps, copies)
        return policy, value[:steps], value[steps:].detach()

    def gradients(self, task: Acting, models: Tensor, rollouts: Sequence[Rollout]) -> Tensor:
        """float32 ``[n, d]``: of the loss of each actor's rollout under its own model, float32 ``[n, d]``."""
        of_one = grad(lambda model, *parts: self.loss(task, model, Rollout(*parts)))
        found: Tensor = vmap(of_one)(models, *stacked(list(rollouts)).parts)
        if self.clip is None:
            return found
        shorter: Tensor = found * (self.clip / found.norm(dim=1, keepdim=True).clamp(min=self.clip))
        return shorter

    def start(self, setup: Setup) -> RunningAlgorithm:
        return RunningActors(setup, self)


class RunningActors(RunningAlgorithm):
    """Keeps where each actor stands: after the last rollout of which it sent a gradient."""

    def __init__(self, setup: Setup, algorithm: ActorCritic) -> None:
        super().__init__(setup)
        self.algorithm = algorithm
        self._stands: dict[int, Any] = {}
        self._moved: dict[int, Any] = {}

    def train(
        self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Streams, rows: Tensor
    ) -> None:
        assert isinstance(task, Acting)
        models = model.expand(len(clients), -1)
        streams = [rng] * len(clients) if isinstance(rng, Rng) else list(rng)
        if not clients:
            return
        for some in _turns(clients):
            self._train(
                task, models[some], [clients[one] for one in some], plan, [streams[one] for one in some], rows, some
            )

    def _train(
        self,
        task: Acting,
        models: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        streams: Sequence[Rng],
        rows: Tensor,
        places: Sequence[int],
    ) -> None:
        draws = [stream.child("client", client).numpy() for client, stream in zip(clients, streams, strict=True)]
        states = [self._standing(task, client) for client in clients]
        rollouts, after = task.rollouts(models, clients, states, plan.epochs or 1, draws)
        turns = [int(stream.path[-1]) for stream in streams]
        rollouts = self.heard(task, list(zip(clients, turns, strict=True)), models, rollouts)
        rows[list(places)] = -plan.lr * self.algorithm.gradients(task, models, rollouts)
        self._moved.update(zip(clients, after, strict=True))
        if len(places) < len(rows):
            self.note(clients, rows)

    def heard(
        self, task: Acting, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout]
    ) -> list[Rollout]:
        """What a learner takes the rollouts of these trainings for that were acted by these models."""
        return rollouts

    def _standing(self, task: Acting, client: int) -> Any:
        """Where an actor stands; at first, at starts that its own stream draws."""
        if client not in self._stands:
            self._stands[client] = task.started(self.setup.rng.child("actor", client).numpy())
        return self._stands[client]

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client in clients:
            if client in self._moved:
                self._stands[client] = self._moved.pop(client)


def _turns(clients: Sequence[int]) -> list[list[int]]:
    """Places in a list of clients, in turns in which each client stands once: its earlier rollouts go before its later ones."""
    turns: list[list[int]] = []
    times: dict[int, int] = {}
    for place, client in enumerate(clients):
        turn = times[client] = times.get(client, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(place)
    return turns
