"""A server in simulated time that follows real arrivals, or replays recorded ones in their order.

Time counts arrivals: the k-th comes at second k. Between two arrivals everything happens at once, as for a server that is
faster than its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fedguard.architectures.systems.event_run import EventRun, course_of
from fedguard.architectures.systems.event_server import EventServer
from fedguard.architectures.systems.trainings import Key, LocalTrainings
from fedguard.contracts import LocalTraining, RoundReport, Setup
from fedguard.errors import ConfigError, FedGuardError
from fedguard.simulated.agenda import SECOND, EventQueue
from fedguard.simulated.course import ServerSimulation


def real(
    system: EventServer,
    setup: Setup,
    begin: Callable[[Key, Tensor], None],
    arrived: Callable[[], Key],
    order: list[Key],
) -> Iterator[RoundReport]:
    """A training in which others train.

    Args:
        setup: the set-up, with a trainer that has the updates.
        begin: starts the k-th training of a client from a model; returns at once.
        arrived: waits for the next training to end, and returns its key.
        order: list to which arrivals are appended.
    """

    def kind(run: ExternalEventRun) -> Callable[..., ServerSimulation]:
        return partial(RealExecution, begin=lambda key: begin(key, run.model), arrived=arrived, order=order)

    return ExternalEventRun(system, setup, kind).reports()


def replay_course(system: EventServer, setup: Setup, order: Sequence[Key]) -> Iterator[RoundReport]:
    """The same training in simulation, with arrivals in the given ``order``."""
    return ExternalEventRun(system, setup, lambda run: partial(SimulationReplay, order=order)).reports()


class ExternalEventRun(EventRun):
    """A training with arrivals from outside the simulation."""

    def __init__(
        self, system: EventServer, setup: Setup, kind: Callable[[ExternalEventRun], Callable[..., ServerSimulation]]
    ) -> None:
        super().__init__(system, setup)
        self._kind = kind
        self._trainings = OnDemandTrainings(self.clients, setup.stopwatch)

    def course(self) -> ServerSimulation:
        return course_of(self._system, self.setup, self._world, self._kind(self))

    def _nothing_to_craft_from(self) -> FedGuardError:
        return ConfigError(
            f"under {self._system.name} all that malicious clients sent arrived before any honest update, as it happened, so "
            "they sent honest ones. Run it again, or for more rounds."
        )


class RealExecution(ServerSimulation):
    """A simulation driven by real arrivals."""

    def __init__(
        self,
        *given: Any,
        begin: Callable[[Key], None],
        arrived: Callable[[], Key],
        order: list[Key],
    ) -> None:
        super().__init__(*given)
        self._begin, self._arrived, self._order = begin, arrived, order
        self._under_way: dict[Key, LocalTraining] = {}
        self._agenda = ArrivalQueue(given[4].child("ties"), self._next)

    def _ends(self, training: LocalTraining, seconds: float, arrives: bool) -> None:
        key = training.key
        self._under_way[key] = training
        self._begin(key)

    def _next(self) -> bool:
        if not self._under_way:
            return False
        key = self._arrived()
        self._order.append(key)
        self._arrive(self._under_way.pop(key))
        return True


class ArrivalQueue(EventQueue):
    """Events that happen at once, and after all of them the next arrival, a second later."""

    def __init__(self, rng: Any, arrival: Callable[[], bool]) -> None:
        super().__init__(rng)
        self._arrival = arrival

    def step(self) -> bool:
        if len(self):
            return super().step()
        self._now += SECOND
        return self._arrival()


class SimulationReplay(ServerSimulation):
    """A simulation driven by recorded arrivals. Trainings without a recorded arrival never arrive."""

    def __init__(self, *given: Any, order: Sequence[Key]) -> None:
        super().__init__(*given)
        self._at: Mapping[Key, int] = {key: at for at, key in enumerate(order, 1)}

    def _ends(self, training: LocalTraining, seconds: float, arrives: bool) -> None:
        at = self._at.get(training.key)
        if at is not None:
            super()._ends(training, at - self.now, True)


class OnDemandTrainings(LocalTrainings):
    """Trainings computed only if asked for, since the others are still under way in their processes."""

    def collect_updates(self, keys: Sequence[Key], apart: Container[int], rows: Tensor) -> None:
        super().collect_updates(keys, AllClients(), rows)


class AllClients(Container[int]):
    """All clients."""

    def __contains__(self, client: object) -> bool:
        return True
