"""Google's system: more devices are asked than needed, the first to report count (Bonawitz et al., MLSys 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import (
    Cell,
    Meeting,
    Participation,
    PositiveFloat,
    PositiveInt,
    Setup,
    Share,
)
from fedguard.contracts.channels import CHECK_IN, PROMISES
from fedguard.contracts.lying import Channels
from fedguard.errors import ConfigError
from fedguard.simulated.barriers import Barrier, k_of_n
from fedguard.simulated.course import AggregationEvent
from fedguard.simulated.pace import Pace
from fedguard.simulated.selectors import DeviceSelection


@dataclass(frozen=True, kw_only=True)
class Google(EventServer):
    """More devices are asked than are needed, and the first to report count.

    $w <- w + server_lr * R(u_1, ..., u_goal)$ with the first updates to come of $round(over * goal)$ devices.

    The goal is ``clients.per_round``. A round closes when this number of devices has reported; late devices have trained in
    vain. At the end of the report window $ceil(least * goal)$ updates are enough; with fewer the round is abandoned. The rule
    assumes the overall share of malicious clients among those that arrived, but malicious clients that answer first make up
    to $min(1, over * f)$ of a round.

    With ``selection`` all devices that are online check in, the first are taken, and they start together. A round starts with
    $round(over * goal)$ devices, or after ``selection`` seconds with the share ``least`` of them; with fewer it is abandoned.
    With ``check_ins`` the server assigns the times at which devices come back, see `fedguard.simulated.pace`.

    Under secure aggregation all devices that are asked agree on keys, and late devices are dropouts. Each group of
    ``secure_aggregation: {groups: k}`` belongs to one of the paper's aggregators and has a session of its own. If too many of
    its devices are late, only its sum is lost.

    With ``aggregators`` the devices of a round are dealt to this number of aggregators, anew in each round. An aggregator fails
    with probability ``aggregator_fails`` before it has passed on its sum, and the updates of its devices are lost; with fewer
    than ``least`` of the goal left, the round is abandoned. With probability ``coordinator_fails`` the coordinator of a round
    fails before it has committed the model. Only this round is lost: the next one starts from the last committed model.

    Args:
        over: number of devices asked for each device needed; at most all are asked.
        window: simulated seconds from the start of training in a round to the end of its reports.
        least: share of the goal that is enough at the end of the window, and share of the asked devices after the selection.
        selection: simulated seconds in which a round looks for its devices; None if drawn devices are asked, and start as soon
            as they are online.
        check_ins: largest average number of check-ins a second; None if devices check in as soon as they can. The period of
            the pace is ``selection``.
        aggregators: number of aggregators; None for one that does not fail.
        aggregator_fails: failure probability of each aggregator in each round; None for never.
        coordinator_fails: failure probability in each round; None for never.
    """

    name = "google"
    source = "Bonawitz et al., Towards Federated Learning at Scale: System Design, MLSys 2019"

    over: Annotated[float, Ge(1)] = 1.3
    window: PositiveFloat = 120.0
    least: Share = 0.8
    selection: PositiveFloat | None = None
    check_ins: PositiveFloat | None = None
    aggregators: PositiveInt | None = None
    aggregator_fails: Share | None = None
    coordinator_fails: Share | None = None

    @property
    def channels(self) -> Channels:  # type: ignore[override]
        """The server believes that asked devices report and, with ``check_ins``, that they come at their assigned times."""
        return frozenset({PROMISES} if self.check_ins is None else {PROMISES, CHECK_IN})

    @property
    def carries(self) -> bool:
        """True: neither the update of a late device counts nor what it would carry on."""
        return True

    def barrier(self, clients: Participation) -> Barrier:
        together = k_of_n(clients.expected, self.window, self._least(clients.expected))
        return replace(together, selection=self._selection(clients))

    def updates(self, clients: Participation) -> int:
        return clients.expected

    def meeting(self, clients: Participation, rounds: int) -> Meeting:
        """A device is in a round once, however many are asked."""
        # Who answers first decides who counts, so sampling does not bound a device: it may be in every round
        return Meeting(updates=clients.expected, most=rounds)

    def _least(self, goal: int) -> int:
        # A product that is whole but for rounding must not ask for one more
        return max(1, math.ceil(self.least * goal - 1e-9))

    def _selection(self, clients: Participation) -> DeviceSelection | None:
        if self.selection is None:
            return None
        asked = self.overselect_clients(clients).expected
        pace = None
        if self.check_ins is not None:
            pace = Pace.of(clients.total, asked, period=self.selection, bound=self.check_ins)
        return DeviceSelection(goal=asked, timeout=self.selection, least=self._least(asked), pace=pace)

    def overselect_clients(self, clients: Participation) -> Participation:
        """Participation with the over-selected number of clients."""
        return replace(clients, per_round=min(clients.total, round(self.over * clients.expected)))

    def choose_clients(self, setup: Setup, round: int) -> Sequence[int]:
        if self.selection is not None:
            # All that take part at this time may check in; the goal of the selection takes the first
            return setup.cell.clients.there(round)
        return setup.choose_clients(round, self.overselect_clients(setup.cell.clients))

    def after_failures(self, setup: Setup, release: AggregationEvent, round: int) -> AggregationEvent:
        draw = setup.rng.child("failures", round).numpy()
        if self.coordinator_fails and draw.random() < self.coordinator_fails:
            return release.without(range(setup.cell.clients.total), "the coordinator failed")
        if not self.aggregator_fails or not self.aggregators:
            return release
        # Sorted, as they began in the order of their times, which must not decide who shares an aggregator
        devices = np.sort([training.client for training in release.begun])
        dealt = draw.permutation(len(devices)) % self.aggregators
        failed = np.flatnonzero(draw.random(self.aggregators) < self.aggregator_fails)
        left = release.without(devices[np.isin(dealt, failed)].tolist())
        arrived, least = len(left.arrivals), self._least(setup.cell.clients.expected)
        if release.abandoned is None and arrived < least:
            return replace(
                left, abandoned=f"{len(failed)} aggregators failed, and {arrived} updates are left, of at least {least}"
            )
        return left

    def sessions(self, cell: Cell) -> Cell:
        """All asked devices agree on keys, and as many may drop out as leave the fewest that a round needs."""
        clients, protocol = self.overselect_clients(cell.clients), cell.protocol
        kept = self.barrier(cell.clients).least / clients.expected * (1 - protocol.dropout.rate)
        # A session has to open with the fewest updates that close a round, so its threshold counts all others as dropouts
        silent = replace(protocol.dropout, rate=min(1 - kept, 1 - 1e-9))
        return replace(cell, clients=clients, protocol=replace(protocol, dropout=silent))

    def reasons(self, cell: Cell) -> Iterator[str]:
        if self.check_ins is not None and self.selection is None:
            yield "google steers the pace of devices that check in, and none do. Set selection, or leave out check_ins."
        if (self.aggregators is None) != (self.aggregator_fails is None):
            yield "what fails with an aggregator of google are its devices. Set aggregators and aggregator_fails, or neither."
        if (self.aggregator_fails or self.coordinator_fails) and cell.protocol.private:
            yield (
                "what a server of google has that fails is released to nobody, or to whoever finds it, and no account of "
                "privacy is made for that. Leave out aggregator_fails and coordinator_fails, or privacy."
            )
        if (self.aggregator_fails or self.coordinator_fails) and cell.protocol.masked:
            yield (
                "what fails in google after its devices have sent would have to fail in the midst of a session of secure "
                "aggregation, which is not simulated. Leave out aggregator_fails and coordinator_fails, or switch masking off."
            )
        try:
            self.barrier(cell.clients)
        except ConfigError as error:
            yield str(error)
            return
        yield from super().reasons(cell)
        if self.selection is not None and cell.clients.scheme == "poisson":
            yield (
                "with selection google takes the devices that check in first, and clients.sampling: poisson draws them. "
                "Use fixed."
            )
        if cell.clients.sampling == "cyclic":
            yield (
                "google asks more devices than a round needs, and under clients.sampling: cyclic exactly these take turns. "
                "Use fixed or poisson."
            )
