"""What a server in simulated time decides, apart from how its trainings run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.release import release_aggregate
from fedguard.contracts import Architecture, Participation, ReceivedRound, Setup, State
from fedguard.simulated.barriers import Barrier
from fedguard.simulated.course import AggregationEvent
from fedguard.simulated.fractions import Fractions
from fedguard.simulated.world import World


class EventSystem(Architecture):
    """What a server in simulated time decides: when it aggregates what, and what becomes of a late update."""

    @abstractmethod
    def barrier(self, clients: Participation) -> Barrier:
        """When the server aggregates."""

    def updates(self, clients: Participation) -> int:
        return min(self.barrier(clients).count, clients.expected)

    def choose_clients(self, setup: Setup, round: int) -> Sequence[int]:
        """Clients asked to train in a round (from 1); without rounds, the clients that start."""
        return setup.choose_clients(round)

    def after_failures(self, setup: Setup, release: AggregationEvent, round: int) -> AggregationEvent:
        """What is left of an aggregation event if some of the servers fail."""
        return release

    def weight(self, staleness: int) -> float:
        """Factor of an update that was trained ``staleness`` aggregates ago.

        Under masks the client applies it, since nobody else has the update; a malicious client does not.
        """
        return 1.0

    def gain(self, clients: Participation) -> float:
        """Factor of an aggregate before the server's step."""
        return 1.0

    def toward(self, updates: Tensor, starts: Sequence[Tensor], model: Tensor) -> Tensor:
        """Updates of ``starts`` (n of ``[d]``) as updates of ``model``: float32 ``[n, d]``."""
        return updates

    def fractions(self, setup: Setup, world: World) -> Fractions | None:
        """Which client trains on which examples, and what share; None if each trains on all of its own."""
        return None

    def visible_states(self, states: tuple[State, ...]) -> tuple[State, ...]:
        """States of the rule that malicious clients know if they see all honest updates."""
        return states

    def aggregate(
        self, setup: Setup, model: Tensor, round: int, received: ReceivedRound, states: tuple[State, ...]
    ) -> Aggregate | str:
        """The aggregate with the states of the rule; or why there is none."""
        return release_aggregate(setup, model, round, received, states)
