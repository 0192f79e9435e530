"""Architectures: who trains with whom, when."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts.algorithm import Algorithm
from fedguard.contracts.cell import Cell, Setup
from fedguard.contracts.lying import Channels
from fedguard.contracts.observers import Listeners, Seating
from fedguard.contracts.participation import Meeting, Participation
from fedguard.contracts.reports import RoundReport
from fedguard.contracts.sight import Exposure, Sight
from fedguard.contracts.tasks import Task
from fedguard.contracts.wire import LocalTraining, RoundObservation


@dataclass(frozen=True)
class Messages:
    """The messages of one local training: bytes from the client and to it, and the number of consecutive messages each way."""

    up: int
    down: int
    each_way: int = 1


class Architecture(Algorithm):
    """Who sends what to whom, and in which order."""

    kind: ClassVar[str] = "architecture"
    #: Whether simulated time decides who trains when
    in_time: ClassVar[bool] = False
    #: What it asks devices or nodes without checking the answer
    channels: Channels = frozenset()
    #: Whether the server keeps transitions of actors in a replay, from which it learns repeatedly
    replays: ClassVar[bool] = False
    #: What the two sides see when nothing is masked.
    exposes: ClassVar[Exposure]

    @property
    def shows_others(self) -> str:
        """What a device has or reads of other devices, a sentence for threat cards; empty if nothing."""
        return ""

    def updates(self, clients: Participation) -> int:
        """Number of updates that are expected to meet in one aggregate."""
        return clients.expected

    @property
    def more_rows(self) -> str:
        """What to do about a rule that gets too few rows if more clients do not help; empty if they do."""
        return ""

    def messages(self, cell: Cell, task: Task) -> Messages:
        """What a client sends and receives in one local training."""
        s = task.statistics.size
        # Statistics of the new model need this model once more, before the next round
        more = s and (task.dim if cell.statistics.fresh else s)
        return Messages(cell.algorithm.bytes_sent(task) + 4 * s, 4 * (task.dim + more))

    def rows(self, updates: int) -> int:
        """Number of rows that the rule gets of this number of updates, before masks."""
        return updates

    @property
    def digest(self) -> str | None:
        """A digest of the file that it reads; None without a file."""
        return None

    def sessions(self, cell: Cell) -> Cell:
        """The cell as sessions of secure aggregation form it: the number of clients, and the share that drops out."""
        return cell

    def meeting(self, clients: Participation, rounds: int) -> Meeting | None:
        """How updates meet within ``rounds`` rounds of simulated time; None if a round consists of its selected clients."""
        return None

    def resolve_meeting(self, setup: Setup) -> Meeting | None:
        """How updates meet in this training: as planned, or as its simulation shows if more may happen than planned.

        Who trains when depends on no example and no model, so it is known before anything is trained.
        """
        return setup.cell.meeting

    def counts_trainings(self, clients: Participation) -> bool:
        """Whether it stops clients after ``most_trainings`` local trainings."""
        return False

    def reasons(self, cell: Cell) -> Iterator[str]:
        """Why it is incompatible with the protocol, the algorithm or the participation: a line for each reason."""
        return iter(())

    def eavesdropper_sight(self, nodes: int, clients: int) -> Sight:
        """What ``nodes`` nodes that pool their messages may see, among ``clients`` clients; nothing if there is a server."""
        return Sight.NOTHING

    def trainings(self) -> int:
        """How many times a client trains in a round."""
        return 1

    def participants(self, setup: Setup, rounds: range) -> tuple[LocalTraining, ...]:
        """The trainings behind the first update of each client that arrives in these rounds, if none is lost.

        Who trains when depends on no example and no model, so they are known before anything is trained.
        """
        times, first = self.trainings(), dict[int, int]()
        for round in rounds:
            first.update((client, round) for client in setup.choose_clients(round) if client not in first)
        return tuple(
            LocalTraining(client, began=0.0, ended=0.0, turn=times * (round - 1) + turn)
            for client, round in first.items()
            for turn in range(1, times + 1)
        )

    def unscale_updates(self, one: RoundObservation) -> Tensor:
        """float32 ``[n, d]``: the updates of a round as the clients sent them, before the server weighs them."""
        return one.sent.updates

    def listeners(self, setup: Setup, place: Seating, nodes: int, rounds: int) -> Listeners:
        """The observers of a training: ``nodes`` nodes in the given position, which receive messages for ``rounds`` rounds."""
        raise NotImplementedError

    def check(self, setup: Setup) -> None:
        """Check that it can train on these data.

        Raises:
            PreconditionError: why it cannot.
        """

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[RoundReport]:
        """Train, with one report per round; the last report holds the final model."""

    def aggregates(self, setup: Setup) -> Iterator[RoundReport]:
        """The same training with one report per aggregate, of which a round may have several."""
        return self.run(setup)
