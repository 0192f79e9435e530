"""Environments, in which actors act and are rewarded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts.attacks import PoisonAttack
from fedguard.contracts.ranges import PositiveInt
from fedguard.contracts.spaces import Box, Choices
from fedguard.contracts.tasks import Preparation, Source

if TYPE_CHECKING:
    from fedguard.contracts.cell import Cell


@dataclass(frozen=True)
class Step:
    """The result of one step of B copies of an environment.

    Attributes:
        state: after the step, and before any new start.
        rewards: float64 ``[B]``.
        terminated: bool ``[B]``: the episode is over, and nothing more can be earned in it.
        truncated: bool ``[B]``: the episode is cut off here, though more could be earned.
    """

    state: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Environment(Source):
    """Where actors act. State in, state out: nothing is changed in place, so a step can be tried and discarded.

    Episodes do not restart by themselves. The caller of a step sees the state in which an episode ended, and restarts these
    copies with `restart_episodes`.

    Args:
        copies: number of environments that an actor steps in parallel.
    """

    #: Return of an episode under an optimal policy, or one that counts as a solution
    best: ClassVar[float]
    #: Number of steps after which an episode is cut off
    limit: ClassVar[int]

    copies: PositiveInt = 8

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and largest possible return of an episode; None if unknown."""
        return None

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "observations")

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of an observation."""

    @property
    @abstractmethod
    def actions(self) -> Choices | Box:
        """What an actor may do."""

    @abstractmethod
    def start_episodes(self, copies: int, rng: np.random.Generator) -> Any:
        """Start this number of environments, each at the start of an episode."""

    @abstractmethod
    def observe_state(self, state: Any) -> NDArray[np.float32]:
        """float32 ``[B, *shape]``: what actors see of a state."""

    @abstractmethod
    def take_step(self, state: Any, actions: NDArray[Any]) -> Step:
        """One step of each. Actions: int64 ``[B]`` of `Choices`, float64 ``[B, n]`` of a `Box`."""

    @abstractmethod
    def restart_episodes(self, state: Any, over: NDArray[np.bool_], rng: np.random.Generator) -> Any:
        """The state after environments with a finished episode (bool ``[B]``) have started a new one."""

    def reasons(self, cell: Cell) -> Iterator[str]:
        """Why actors cannot train in this cell: a line for each reason."""
        algorithm, attack = cell.algorithm, cell.adversary
        if not algorithm.acts:
            yield (
                f"{self.name} is an environment, in which actors act, and {algorithm.name} trains on examples. Set "
                "training.algorithm: actor_critic."
            )
        if isinstance(attack, PoisonAttack) and attack.overrides("poison"):
            yield (
                f"{attack.name} changes examples, and the actors of {self.name} have none. Use reward_flip, or an attack on "
                "updates such as sign_flip."
            )
        if isinstance(attack, PoisonAttack) and attack.goal == "backdoor" and isinstance(self.actions, Box):
            yield (
                f"{attack.name} makes a model choose one of a few actions, and the actions of {self.name} are a range. Use "
                "reward_flip, or take cartpole."
            )
        if looking := cell.pipeline.looking_at_data:
            yield f"{' and '.join(looking)} works on examples, and the actors of {self.name} have none. Leave it out."
        if cell.evasion is not None and isinstance(self.actions, Box):
            yield (
                f"{cell.evasion.name} makes a model choose another of a few actions, and those of {self.name} are a range. "
                "Leave out evaluation.evasion, or take cartpole."
            )
        if cell.noise.unit == "record":
            yield (
                "noise for each record hides one example, and what an actor meets with follows from all that it did before: "
                f"under {self.name} no step is a record of its own. Use privacy of the unit client, which is here an actor."
            )
        if cell.shared or cell.copied:
            yield f"examples are shared or copied, and {self.name} has none. Leave out task.shared and task.partition_among."
