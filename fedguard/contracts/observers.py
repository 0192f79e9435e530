"""Who observes a training, and what observing nodes solve of the messages they receive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from fedguard.contracts.wire import RoundObservation

#: Who observes: see `fedguard.config.sections.ObserverSection`
Seating = Literal["server", "nodes", "side_by_side", "around"]


@dataclass(frozen=True)
class Observer:
    """An adversary that infers, as far as it affects the training: the watched round, and the model that a server sends in it.

    Attributes:
        round: the watched round (from 1); None for all rounds.
        sends: the model -> the model that a malicious server sends instead, float32 ``[d]`` both; None if it follows the
            protocol. Updates trained from another model are useless for the training, so the watched round changes nothing.
        seat: the observing nodes, which pool the messages they receive; empty if the server observes.
        listens: number of rounds after the watched one in which nodes observe. They observe from the first round on.
    """

    round: int | None
    sends: Callable[[Tensor], Tensor] | None = None
    seat: tuple[int, ...] = ()
    listens: int = 0

    def watches(self, round: int) -> bool:
        if self.round is None or self.round == round:
            return True
        return bool(self.seat) and round <= self.round + self.listens


@dataclass(frozen=True, eq=False)
class SolvedUpdate:
    """What observing nodes solved of an update, or of the mean of several.

    Attributes:
        behind: the nodes behind the update.
        model: float32 ``[d]``: the model from which they trained.
        update: float32 ``[d]``; 0 where it is unknown.
        known: bool ``[d]``: the known coordinates; None for all.
    """

    behind: tuple[int, ...]
    model: Tensor
    update: Tensor
    known: Tensor | None = None


class Listeners(ABC):
    """Nodes that pool the messages they receive, and the updates that they can solve for.

    The graph of messages determines what they can solve for, so it is known before any training.

    Attributes:
        nodes: the observing nodes.
    """

    nodes: tuple[int, ...]

    @abstractmethod
    def reads(self, round: int) -> Mapping[int, float]:
        """The share of its update of a round that they can solve for, for each other node with a share above 0.

        They also know the model from which this update was trained.
        """

    @abstractmethod
    def sum_of(self, round: int) -> tuple[int, ...]:
        """The nodes of the smallest solvable sum of updates of a round that hides each of them; none without such a sum."""

    @abstractmethod
    def solve_update(self, watched: Sequence[RoundObservation], round: int, behind: tuple[int, ...]) -> SolvedUpdate:
        """The update of one node, or the mean of those in a sum, from the messages of the watched rounds (from the first)."""
