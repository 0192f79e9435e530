"""The course of a training around a server: who trains when from which model, and which updates meet in one aggregate.

It depends only on speeds, links and barriers, not on vectors: it is simulated without any, and the training follows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from fedguard.contracts import Fate, LocalTraining
from fedguard.contracts.channels import PROMISES
from fedguard.contracts.lying import Report, report_truth
from fedguard.errors import StalledError
from fedguard.rng import Rng
from fedguard.simulated.agenda import EventQueue, Rank
from fedguard.simulated.barriers import Barrier
from fedguard.simulated.fractions import Fractions
from fedguard.simulated.places import SlotScheduler, StalenessScheduler
from fedguard.simulated.selectors import Selectors
from fedguard.simulated.world import World


@dataclass(frozen=True)
class AggregationEvent:
    """One aggregate, or an abandoned round.

    Attributes:
        at: simulated seconds.
        version: number of aggregates before it.
        begun: trainings that have begun since the last aggregate.
        arrivals: the trainings of the aggregated updates, in the order of arrival.
        abandoned: why there is no aggregate; None if there is one.
        ended: trainings that have ended since the last aggregate, in the order of their ends. One whose update has arrived may
            wait for a later aggregate.
    """

    at: float
    version: int
    begun: tuple[LocalTraining, ...]
    arrivals: tuple[LocalTraining, ...]
    abandoned: str | None = None
    ended: tuple[LocalTraining, ...] = ()

    def of_fate(self, *fates: Fate) -> tuple[LocalTraining, ...]:
        """The trainings that have ended with one of these fates."""
        return tuple(one for one in self.ended if one.fate in fates)

    @property
    def missing(self) -> tuple[LocalTraining, ...]:
        """The trainings that have ended without an update."""
        return tuple(one for one in self.ended if one.fate is not Fate.ARRIVED)

    def staleness(self) -> tuple[int, ...]:
        """Staleness of each update: number of aggregates since its model."""
        return tuple(self.version - arrival.version for arrival in self.arrivals)

    def without(self, clients: Collection[int], abandoned: str | None = None) -> AggregationEvent:
        """The event if the updates of these clients are lost after all, and ``abandoned`` says why the round is."""
        gone = {one.key for one in self.arrivals if one.client in clients}
        return replace(
            self,
            arrivals=tuple(one for one in self.arrivals if one.key not in gone),
            abandoned=self.abandoned or abandoned,
            ended=tuple(replace(one, fate=Fate.LOST) if one.key in gone else one for one in self.ended),
        )


#: (round, from 1) -> the devices of a round.
Chosen = Callable[[int], Sequence[int]]

#: Rounds that are searched for the first devices, if devices do not start together: Poisson sampling may choose nobody.
_PATIENCE = 1000

#: Trainings and waits in a row that bring no update, or updates beyond the number of an aggregate that lacks others, before the
#: simulation stops; and the further ones allowed for each device.
_IN_VAIN, _IN_VAIN_EACH = 100_000, 100


class ServerSimulation:
    """Simulation of a server and its devices, one aggregation event after another. The cost of an event does not grow with the
    number of devices.

    A device that is offline starts when it comes online. A device that leaves before its update has arrived loses its work: it
    is out of the round if all start together; otherwise its slot is free, as if it had sent.

    If the barrier has backups, the next device also holds each device's examples (device 0 holds the last one's). A task
    that starts again there ends with the first of its two copies.

    Args:
        chosen: devices of a round, if all start together; candidates for the selection, if the barrier has one. Otherwise the
            devices of the first round that chooses any start, and a device that has sent gives its slot to one of the idle
            ``devices``, itself included.
        rng: draws ties, and which device gets a free slot.
        fractions: which device trains on which examples, and what share of them, if all start together; None if each trains on
            all of its own.
        report: what devices report of when they check in, and whether they will send anything, if all start together.
        most: largest number of trainings that a device begins, if devices do not start together; afterwards it takes no part.
    """

    def __init__(
        self,
        world: World,
        barrier: Barrier,
        devices: int,
        chosen: Chosen,
        rng: Rng,
        fractions: Fractions | None = None,
        report: Report = report_truth,
        most: int | None = None,
    ) -> None:
        self._world, self._barrier, self._chosen, self._report = world, barrier, chosen, report
        self._agenda = EventQueue(rng.child("ties"))
        self._turns, self._most = [0] * devices, inf if most is None else most
        self._busy: dict[int, LocalTraining] = {}
        self._places: SlotScheduler | StalenessScheduler
        self._version = self._round = self._backed_up = self._in_vain = 0
        self._enough = barrier.enough(devices)
        self._patience = _IN_VAIN + _IN_VAIN_EACH * devices
        self._begun: list[LocalTraining] = []
        self._fractions = fractions
        self._waiting: list[LocalTraining] = []
        self._held: list[LocalTraining] = []
        self._senders: set[int] = set()
        self._ended: list[LocalTraining] = []
        self._released: deque[AggregationEvent] = deque()
        self._rng = rng.child("places")
        selection, selecting = barrier.selection, rng.child("selection")
        self._selectors = Selectors(selection, world, self._agenda, selecting, report) if selection else None

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self._agenda.now

    @property
    def events(self) -> int:
        """Number of events so far."""
        return self._agenda.happened

    def releases(self) -> Iterator[AggregationEvent]:
        """The aggregation events, in order, without end.

        Raises:
            StalledError: no event is left; or devices start again and again, and no update comes.
        """
        if self._barrier.fresh:
            self._open()
        else:
            self._set_out()
        while True:
            while self._released:
                yield self._released.popleft()
            if not self._agenda.step():
                remedy = "Set a deadline, or wait for fewer." if self._most == inf else "Raise clients.most_trainings."
                raise StalledError(
                    f"after {self.now:g} simulated seconds nobody computes or sends any more, and the server has "
                    f"{len(self._waiting)} of the {self._enough} updates that it waits for. {remedy}"
                )

    def _set_out(self) -> None:
        """Start the devices that continue by themselves."""
        devices = len(self._turns)
        crew = next((crew for round in range(1, _PATIENCE) if (crew := self._chosen(round))), ())
        # With fewer at work than devices, an idle one would be the slowest for ever: bounded delay needs all of them,
        # which `ParameterServer.reasons` sees to
        if len(crew) == devices:
            self._places = StalenessScheduler(self._barrier, devices)
        else:
            self._places = SlotScheduler(set(range(devices)).difference(crew), self._rng, self._is_exhausted)
        for device in crew:
            self._enter(device)

    def _go_on(self, devices: Iterable[int]) -> None:
        """Start these devices, which continue by themselves, unless they have used up their trainings."""
        for device in devices:
            if not self._is_exhausted(device):
                self._enter(device)

    def _is_exhausted(self, device: int) -> bool:
        """Whether a device has begun as many trainings as it may."""
        return self._turns[device] >= self._most

    def _enter(self, device: int) -> None:
        self._agenda.after(0.0, self._start, device, self._round, rank=Rank.START)

    def _open(self) -> None:
        """Begin a round; what devices of the last round still train is of no use."""
        self._round += 1
        self._busy.clear()
        chosen = self._chosen(self._round)
        if not chosen:
            # Through the queue: releasing opens the next round, so that a series of empty rounds would recurse here
            self._agenda.after(0.0, self._close, self._round, "nobody was chosen", rank=Rank.DECIDE)
        elif self._selectors is None:
            self._configure(chosen)
        else:
            self._selectors.open(self._round, chosen, self._accept_selection)

    def _accept_selection(self, devices: list[int]) -> None:
        """Start the round with the devices that the selectors have found, or abandon it."""
        assert self._selectors is not None
        if why := self._selectors.too_few(devices):
            self._release(why)
        else:
            self._configure(devices)

    def _configure(self, devices: Sequence[int]) -> None:
        """Start these devices, and the deadline of their round."""
        asked = len(devices)
        if self._fractions is not None:
            devices, asked = self._at_work(devices)
        self._enough = self._barrier.enough(asked)
        for device in devices:
            self._enter(device)
        if self._barrier.deadline is not None:
            # The window opens when the devices are known: a selection has a timeout of its own
            self._agenda.after(self._barrier.deadline, self._close, self._round, rank=Rank.DECIDE)

    def _at_work(self, devices: Sequence[int]) -> tuple[list[int], int]:
        """The devices with work in a round, and the number of updates that may come of it."""
        assert self._fractions is not None
        found = self._fractions.open(devices, self.now)
        return list(found), sum(found.values())

    def _start(self, device: int, round: int) -> None:
        """A device pulls the model and trains, if it is online."""
        if round != self._round:
            return
        # One that only claims to be online is not waited for: it counts as started, and nothing of it ever arrives
        now, away = self.now, self._barrier.fresh and not self._report(PROMISES, device, True, round)
        wait = 0.0 if away else self._world.presence.wait(device, now)
        if wait:
            self._vain()
            if wait < inf:
                self._agenda.after(wait, self._start, device, round, rank=Rank.START)
            return
        if self._fractions is not None:
            self._do(self._fractions, device)
            return
        # The round, not a count: what is drawn for a device in a round does not depend on the rounds in which it was chosen
        self._turns[device] = turn = self._round if self._barrier.fresh else self._turns[device] + 1
        training = LocalTraining(device, now, now, turn=turn, version=self._version, by=device)
        self._busy[device] = training
        self._begun.append(training)
        # It stays in _busy without an event, so that the deadline reports it as late
        if away:
            return
        seconds, arrives = self._world.train(device, turn, now)
        self._ends(training, seconds, arrives)

    def _ends(self, training: LocalTraining, seconds: float, arrives: bool) -> None:
        """Schedule the end of a training in ``seconds``: its update arrives, or its device leaves."""
        self._agenda.after(seconds, self._arrive if arrives else self._leave, training, rank=Rank.DELIVER)

    def _do(self, fractions: Fractions, device: int) -> None:
        """A device trains on the examples of one client after another, as far as there is time."""
        now = at = self.now
        for client, ready in fractions.jobs(device):
            at = max(at, ready)
            planned = fractions.plan_training(client, device, at)
            if planned is None:
                return
            training = self._busy[client] = replace(planned, turn=self._round, version=self._version)
            self._begun.append(training)
            # A draw of its own for another's task, as for a backup.
            turn, task = (self._round, None) if client == device else (-self._round, client)
            seconds, arrives = self._world.train(device, turn, at, task, training.share)
            at += seconds
            self._ends(training, at - now, arrives)
            if not arrives:
                return
            # Only what arrived is history: the time of a training that was cut short says nothing about the pace
            fractions.note(device, training, seconds)

    def _arrive(self, training: LocalTraining) -> None:
        device = training.client
        if self._busy.get(device) is not training:
            return  # the round is over, or the other copy was faster: no event is taken out of the queue
        del self._busy[device]
        # Drawn at the end: the network loses a finished upload, and the device does not learn of it
        lost = self._world.loses(device, training.turn)
        ended = self._end(training, Fate.LOST if lost else Fate.ARRIVED)
        if lost:
            self._vain()
        else:
            self._take(ended)
            if len(self._waiting) >= self._enough and self._barrier.are_buffers_full(self._senders):
                self._release()
            elif self._barrier.backups and self._enough - len(self._waiting) <= self._barrier.backups:
                self._agenda.after(0.0, self._back_up, self._round, rank=Rank.DECIDE)
        if not self._barrier.fresh:
            self._go_on(self._places.next_after_update(device))

    def _back_up(self, round: int) -> None:
        """Start awaited tasks a second time if the device with the same examples is idle; once in a round.

        At rank DECIDE: an update that arrives at the same time needs no copy.
        """
        if round != self._round or self._backed_up == round:
            return
        self._backed_up = round
        for training in self._busy.values():
            other = (training.client + 1) % len(self._turns)
            if other in self._busy or self._world.presence.wait(other, self.now):
                continue
            # A draw of its own: the other device may be slow in one of the two tasks, and not in the other.
            seconds, arrives = self._world.train(other, -training.turn, self.now, training.client)
            if arrives:
                self._agenda.after(seconds, self._arrive, training, rank=Rank.DELIVER)

    def _take(self, arrival: LocalTraining) -> None:
        """Add an update to the next aggregate, or hold it for a later one."""
        self._in_vain = 0
        if self._barrier.once and arrival.client in self._senders:
            self._held.append(arrival)
        else:
            self._waiting.append(arrival)
            self._senders.add(arrival.client)
        # A few fast devices may fill time with updates that an aggregate of others cannot use, without time ever moving on
        if (waiting := len(self._waiting) + len(self._held)) > self._enough + self._patience:
            raise StalledError(
                f"after {self.now:g} simulated seconds {waiting:,} updates of a few devices wait for updates of others, which "
                "an aggregate needs. Raise network.malicious_pace, or network.link.latency above 0."
            )

    def _leave(self, training: LocalTraining) -> None:
        """A device leaves, and its work is lost."""
        device = training.client
        if self._busy.get(device) is not training:
            return
        del self._busy[device]
        self._end(training, Fate.INTERRUPTED)
        self._vain()
        if not self._barrier.fresh:
            self._go_on(self._places.next_after_dropout(device))

    def _end(self, training: LocalTraining, fate: Fate) -> LocalTraining:
        """Note how a training has ended now."""
        ended = replace(training, ended=self.now, fate=fate)
        self._ended.append(ended)
        return ended

    def _vain(self) -> None:
        """Count an event without an update: the network lost one, or a device left or waits."""
        self._in_vain += 1
        if self._in_vain > self._patience:
            lost, left = ([one.fate for one in self._ended].count(fate) for fate in (Fate.LOST, Fate.INTERRUPTED))
            raise StalledError(
                f"after {self.now:g} simulated seconds no update comes any more: {lost} trainings since the last "
                f"aggregate were lost on their way, and the devices of {left} left before they were done. "
                "Let devices be there for longer (network.availability), or lower network.compute, network.link or its loss."
            )

    def _close(self, round: int, why: str | None = None) -> None:
        """End a round at its deadline or for another reason, unless it is over."""
        if round == self._round:
            self._release(why)

    def _release(self, abandoned: str | None = None) -> None:
        arrived, least = len(self._waiting), self._barrier.least
        if abandoned is None and self._barrier.fresh and arrived < least:
            abandoned = f"{arrived} updates arrived, of at least {least}"
        # Without rounds nobody is late: who is at work has pulled an older model, and its update counts for a later aggregate
        for training in self._busy.values() if self._barrier.fresh else ():
            self._end(training, Fate.LATE)
        self._released.append(
            AggregationEvent(
                at=self.now,
                version=self._version,
                begun=tuple(self._begun),
                arrivals=tuple(self._waiting),
                abandoned=abandoned,
                ended=tuple(self._ended),
            )
        )
        # An abandoned round leaves the model as it is, and makes no update older
        self._version += abandoned is None
        self._in_vain = 0
        self._waiting, self._begun, self._ended = [], [], []
        self._senders.clear()
        held, self._held = self._held, []
        for arrival in held:  # of fewer devices than there were in this aggregate, so they do not fill the next one
            self._take(arrival)
        if self._barrier.fresh:
            self._open()
