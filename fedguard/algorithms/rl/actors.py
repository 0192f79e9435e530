"""The common part of algorithms with acting clients: how actors continue from one rollout to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedguard.contracts import (
    ActingTask,
    AlgorithmSetup,
    CellContext,
    Environment,
    FederatedAlgorithm,
    Fraction,
    LocalPlan,
    LocalStatistics,
    Policy,
    PositiveFloat,
    PositiveInt,
    Rollout,
    RunningAlgorithm,
    Task,
    Training,
)
from fedguard.contracts.channels import TRAJECTORIES
from fedguard.errors import require
from fedguard.rng import Rng, Streams


@dataclass(frozen=True, kw_only=True)
class Actors(FederatedAlgorithm):
    """Each client acts for ``t_max`` steps by the model that it pulled; its episodes go on from one rollout to the next.

    Args:
        t_max: steps of a rollout.
        gamma: the discount of what comes later.
        clip: the largest length of an honest gradient; null for none.
        reward_scale: what rewards are multiplied by before anybody learns from them, so that returns are of a size that the
            critic reaches. It changes neither the optimum nor a metric: the environment's own rewards are reported.
    """

    only_updates = True
    acts = True
    keeps = "the state of its environments"

    t_max: PositiveInt = 5
    gamma: Fraction = 0.99
    clip: PositiveFloat | None = None
    reward_scale: PositiveFloat = 1.0

    later: ClassVar[dict[str, Any]] = {"reward_scale": 1.0}

    def check(self, training: Training) -> None:
        require(
            not training.momentum and training.local_epochs == 1 and not training.local_steps,
            f"{self.name} learns from rollouts, so local_epochs, local_steps and momentum do not apply; set t_max for longer "
            "rollouts.",
        )

    def reasons(self, cell: CellContext) -> Iterator[str]:
        yield from super().reasons(cell)
        if not isinstance(cell.data, Environment):
            yield (
                f"{self.name} learns from acting, and {cell.data.name} is a data set. Set task.data to an environment such as "
                "cartpole, or use fedsgd."
            )

    def plan(self, training: Training) -> LocalPlan:
        return LocalPlan(lr=1.0, epochs=self.t_max)

    def server_step(self, training: Training) -> float:
        return training.server_lr * training.lr

    def lr_alone(self, training: Training) -> float:
        return self.server_step(training)

    def steps_taken(self, task: Task) -> int:
        return self.t_max * task.sizes[0]

    def clip_gradients(self, gradients: Tensor) -> Tensor:
        """Gradients float32 ``[n, d]``, none longer than ``clip``."""
        if self.clip is None:
            return gradients
        # The clamp leaves shorter gradients as they are, and avoids 0 / 0 for a gradient of 0
        shorter: Tensor = gradients * (self.clip / gradients.norm(dim=1, keepdim=True).clamp(min=self.clip))
        return shorter


class RunningActors(RunningAlgorithm):
    """Keeps the state of each actor after its last rollout that led to a message."""

    def __init__(self, setup: AlgorithmSetup) -> None:
        super().__init__(setup)
        self._stands: dict[int, Any] = {}
        self._moved: dict[int, Any] = {}
        self._kept: dict[int, list[Rollout]] = {}

    def law(self, clients: Sequence[int]) -> Policy | None:
        """The policy by which these actors act; None for the task's policy."""
        return None

    @abstractmethod
    def fill_rows(
        self, task: ActingTask, keys: Sequence[tuple[int, int]], models: Tensor, rollouts: list[Rollout], rows: Tensor
    ) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what actors send, before a server has learned from it.

        Args:
            keys: the actor of each rollout, and the number of its local training.
            models: float32 ``[n, d]``: the models by which they acted.
        """

    def train(
        self,
        task: Task,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        rows: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        assert isinstance(task, ActingTask)
        models = model.expand(len(clients), -1)
        streams = [rng] * len(clients) if isinstance(rng, Rng) else list(rng)
        for places in _turns(clients):
            some, own = [clients[place] for place in places], [streams[place] for place in places]
            draws = [stream.child("client", client).numpy() for client, stream in zip(some, own, strict=True)]
            states = [self._standing(task, client) for client in some]
            steps, law = plan.epochs or 1, self.law(some)
            met, after = task.rollouts(models[places], some, states, steps, draws, law)
            rollouts = [self._retell_rollout(task, *one) for one in zip(some, met, own, strict=True)]
            keys = [(client, int(stream.path[-1])) for client, stream in zip(some, own, strict=True)]
            sent = rows.new_empty(len(places), rows.shape[1])
            self.fill_rows(task, keys, models[places], rollouts, sent)
            rows[places] = plan.lr * sent
            self._moved.update(zip(some, after, strict=True))
            # The caller notes only at the end, but the next turn of the same actor goes on from this one's state
            if len(places) < len(rows):
                self.note(some, rows)

    def _retell_rollout(self, task: ActingTask, client: int, rollout: Rollout, rng: Rng) -> Rollout:
        """The rollout that an actor reports, which a malicious actor may alter."""
        kept = self._kept.setdefault(client, [])
        return task.report(TRAJECTORIES, client, rollout, kept, task.policy.choices, rng.child("retell", client))

    def _standing(self, task: ActingTask, client: int) -> Any:
        """The state of an actor; initially, episode starts drawn from the actor's own stream."""
        if client not in self._stands:
            self._stands[client] = task.start_actor(self.setup.rng.child("actor", client).numpy())
        return self._stands[client]

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client in clients:
            if client in self._moved:
                self._stands[client] = self._moved.pop(client)


def _turns(clients: Sequence[int]) -> list[list[int]]:
    """Indices into ``clients``, split into turns with each client at most once, earlier rollouts before later ones."""
    turns: list[list[int]] = []
    times: dict[int, int] = {}
    for place, client in enumerate(clients):
        turn = times[client] = times.get(client, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(place)
    return turns
