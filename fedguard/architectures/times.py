"""The simulated world of a training, and the time that synchronous rounds take in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from fedguard.contracts import Architecture, Fate, LocalTraining, Network, RoundTiming, Setup
from fedguard.simulated.world import World, least_seconds


def world(setup: Setup, model: Tensor, system: Architecture | None = None) -> World:
    """The devices and links of a set-up.

    Args:
        model: float32 ``[d]``; the size of a message, unless ``system`` gives another one.
        system: architecture that says what devices send and receive.
    """
    messages = system.messages(setup.cell.training, setup.task) if system and model.element_size() == 4 else None
    malicious = setup.malicious if setup.cell.attack else frozenset()
    return World(
        setup.cell.network or Network(),
        _work(setup),
        model.element_size() * len(model),
        setup.rng.child("network"),
        malicious,
        messages,
        malicious if setup.cell.threat.stays else frozenset(),
    )


def least_of(setup: Setup, system: Architecture) -> list[float]:
    """Lower bound on the simulated seconds of a training of each device under ``system``, see `least_seconds`."""
    quick = setup.malicious if setup.cell.attack else frozenset()
    messages = system.messages(setup.cell.training, setup.task)
    return least_seconds(setup.cell.network or Network(), _work(setup), 4 * setup.task.dim, quick, messages)


def _work(setup: Setup) -> list[float]:
    """Examples that one training of each device passes over.

    Durations reveal a client's number of examples. If they decide which updates meet and noise protects the examples, every
    training therefore takes as long as with the mean number of examples.
    """
    plan, sizes = setup.local_plan, setup.task.sizes
    if setup.cell.meeting is not None and setup.cell.protocol.private:
        sizes = (round(sum(sizes) / len(sizes)),) * len(sizes)
    return [plan.work(size) for size in sizes]


class SynchronousClock:
    """The time of rounds in which the server waits for everybody."""

    def __init__(self, setup: Setup, model: Tensor, system: Architecture) -> None:
        self._setup, self._world, self._seconds = setup, world(setup, model, system), 0.0

    def after(self, chosen: Collection[int], round: int, arrived: int, silent: Collection[int]) -> RoundTiming:
        """The timing of a round that starts when the previous one ends.

        Args:
            chosen: clients that train in the round.
            arrived: number of updates that arrived.
            silent: clients that dropped out before their update arrived.
        """
        began = self._seconds
        ended = {client: began + self._world.train(client, round, began)[0] for client in chosen}
        self._seconds = max(ended.values(), default=began)
        order = sorted(ended, key=lambda client: ended[client])
        fates = {client: Fate.LOST if client in silent else Fate.ARRIVED for client in order}
        trainings = tuple(LocalTraining(client, began, ended[client], fate) for client, fate in fates.items())
        acting = self._setup.acting(round)
        return moment(self._world, self._seconds, (0,) * arrived, trainings=trainings, acting=acting)


def moment(world: World, seconds: float, staleness: tuple[int, ...], **told: Any) -> RoundTiming:
    """A moment at which updates of these ages have arrived, with what else is told of it."""
    spent = world.spent
    return RoundTiming(
        seconds=seconds,
        computed=spent.seconds,
        joules=spent.joules,
        bytes_up=spent.bytes_up,
        bytes_down=spent.bytes_down,
        staleness=staleness,
        **told,
    )
