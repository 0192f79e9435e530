"""The course of a training around a server: who trains when from which model, and which updates meet in one aggregate.

It depends on speeds, links and barriers alone, and not on vectors: so it is told without any, and the training follows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from fedguard.contracts import Span
from fedguard.errors import StalledError
from fedguard.rng import Rng
from fedguard.simulated.agenda import EventQueue, Rank
from fedguard.simulated.barriers import Barrier
from fedguard.simulated.fractions import Fractions, Job
from fedguard.simulated.lies import HONEST, AvailabilityLies
from fedguard.simulated.places import SlotScheduler, StalenessScheduler
from fedguard.simulated.selectors import Selectors
from fedguard.simulated.world import World


@dataclass(frozen=True)
class Arrival:
    """One update that reached the server.

    Attributes:
        device: whose.
        turn: of the device's trainings, from 1; where all start together, the round.
        version: of the model that it was trained from: the number of aggregates before it.
        began, at: simulated seconds of the pull and of the arrival.
        job: who has trained it and how much of it, where that is not the device itself and everything.
    """

    device: int
    turn: int
    version: int
    began: float
    at: float
    job: Job | None = None

    @property
    def by(self) -> int:
        """The device that has trained it."""
        return self.device if self.job is None else self.job.device


@dataclass(frozen=True)
class AggregationEvent:
    """One aggregate, or an abandoned round.

    Attributes:
        at: simulated seconds.
        version: number of aggregates before it.
        begun: the devices that have pulled the model since the last one, each with its turn.
        arrivals: the updates behind it, as they arrived.
        late: devices whose training it has made useless, each with its turn.
        lost: those whose update the network has lost since the last one.
        interrupted: those that have left since the last one, before their update had arrived.
        abandoned: why there is no aggregate; None where there is one.
        spans: the trainings that have ended since the last one, in the order in which they did.
        jobs: of those in ``begun``, where who trains what share of them is settled.
    """

    at: float
    version: int
    begun: tuple[tuple[int, int], ...]
    arrivals: tuple[Arrival, ...]
    late: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    interrupted: tuple[tuple[int, int], ...] = ()
    abandoned: str | None = None
    spans: tuple[Span, ...] = ()
    jobs: tuple[Job, ...] = ()

    def staleness(self) -> tuple[int, ...]:
        """How many aggregates there were since each update's model."""
        return tuple(self.version - arrival.version for arrival in self.arrivals)

    def without(self, devices: Collection[int], abandoned: str | None = None) -> AggregationEvent:
        """What is left where the updates of these devices are lost after all, or the whole of it for a reason."""
        gone = {one.device for one in self.arrivals if one.device in devices}
        return replace(
            self,
            arrivals=tuple(one for one in self.arrivals if one.device not in gone),
            lost=(*self.lost, *((one.device, one.turn) for one in self.arrivals if one.device in gone)),
            abandoned=self.abandoned or abandoned,
            spans=tuple(
                replace(one, fate="lost") if one.client in gone and one.fate == "arrived" else one for one in self.spans
            ),
        )


#: (round, from 1) -> the devices of a round.
Chosen = Callable[[int], Sequence[int]]

#: Rounds in which nobody may be chosen before a training is given up in which nobody starts together.
_PATIENCE = 1000

#: Trainings and waits in a row of which no update comes, or updates too many for an aggregate that lacks others, before a
#: training is given up; and so many more for each device.
_IN_VAIN, _IN_VAIN_EACH = 100_000, 100


class ServerSimulation:
    """All that happens, one release after the other. An event costs the same however many devices there are.

    A device that is not there starts when it comes. One that leaves before its update has arrived loses its work: where all
    start together it is out of the round, and else its place is free as if it had sent.

    Where the barrier has backups, the examples of each device lie at the next one, too, the first being next to the last. A
    task that is started again there ends with the first of its two copies.

    Args:
        chosen: the devices of a round, where all start together; where the barrier has a selection, those among which it looks
            for them. Where each goes on by itself, those of the first round for which anybody is chosen start, and one that
            has sent gives its place to one of the ``devices`` that are idle, itself among them.
        rng: draws ties, and who gets a free place.
        fractions: who trains whose examples, and what share of them, where all start together; None for its own, and all.
        lies: who comes when it was not told to, or never reports, where all start together.
        most: where each goes on by itself, how many trainings of a device begin; after these it takes no more part.
    """

    def __init__(
        self,
        world: World,
        barrier: Barrier,
        devices: int,
        chosen: Chosen,
        rng: Rng,
        fractions: Fractions | None = None,
        lies: AvailabilityLies = HONEST,
        most: int | None = None,
    ) -> None:
        self._world, self._barrier, self._chosen, self._lies = world, barrier, chosen, lies
        self._agenda = EventQueue(rng.child("ties"))
        self._turns, self._most = [0] * devices, inf if most is None else most
        self._busy: dict[int, Arrival] = {}
        self._places: SlotScheduler | StalenessScheduler
        self._version = self._round = self._backed_up = self._in_vain = 0
        self._enough = barrier.enough(devices)
        self._patience = _IN_VAIN + _IN_VAIN_EACH * devices
        self._begun: list[tuple[int, int]] = []
        self._fractions = fractions
        self._jobs: list[Job] = []
        self._waiting: list[Arrival] = []
        self._held: list[Arrival] = []
        self._senders: set[int] = set()
        self._lost: list[tuple[int, int]] = []
        self._interrupted: list[tuple[int, int]] = []
        self._spans: list[Span] = []
        self._released: deque[AggregationEvent] = deque()
        self._rng = rng.child("places")
        selection, selecting = barrier.selection, rng.child("selection")
        self._selectors = Selectors(selection, world, self._agenda, selecting, lies) if selection else None

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self._agenda.now

    @property
    def events(self) -> int:
        """How many have happened."""
        return self._agenda.happened

    def releases(self) -> Iterator[AggregationEvent]:
        """The releases, in order, without end.

        Raises:
            StalledError: nothing will ever happen again; or devices start again and again, and no update comes.
        """
        if self._barrier.fresh:
            self._open()
        else:
            self._set_out()
        while True:
            while self._released:
                yield self._released.popleft()
            if not self._agenda.step():
                mend = "Set a deadline, or wait for fewer." if self._most == inf else "Raise clients.most_trainings."
                raise StalledError(
                    f"after {self.now:g} simulated seconds nobody computes or sends any more, and the server has "
                    f"{len(self._waiting)} of the {self._enough} updates that it waits for. {mend}"
                )

    def _set_out(self) -> None:
        """Those who go on by themselves start."""
        devices = len(self._turns)
        crew = next((crew for round in range(1, _PATIENCE) if (crew := self._chosen(round))), ())
        if len(crew) == devices:
            self._places = StalenessScheduler(self._barrier, devices)
        else:
            self._places = SlotScheduler(set(range(devices)).difference(crew), self._rng, self._is_exhausted)
        for device in crew:
            self._enter(device)

    def _go_on(self, devices: Iterable[int]) -> None:
        """Places are free for these, who go on by themselves."""
        for device in devices:
            if not self._is_exhausted(device):
                self._enter(device)

    def _is_exhausted(self, device: int) -> bool:
        """Whether a device has begun as many trainings as it may."""
        return self._turns[device] >= self._most

    def _enter(self, device: int) -> None:
        self._agenda.after(0.0, self._start, device, self._round, rank=Rank.START)

    def _open(self) -> None:
        """A round begins, for those who are chosen; what others still do is of no use."""
        self._round += 1
        self._busy.clear()
        chosen = self._chosen(self._round)
        if not chosen:
            self._agenda.after(0.0, self._close, self._round, "nobody was chosen", rank=Rank.DECIDE)
        elif self._selectors is None:
            self._configure(chosen)
        else:
            self._selectors.open(self._round, chosen, self._accept_selection)

    def _accept_selection(self, devices: list[int]) -> None:
        """The selectors have found these devices."""
        assert self._selectors is not None
        if why := self._selectors.too_few(devices):
            self._release(why)
        else:
            self._configure(devices)

    def _configure(self, devices: Sequence[int]) -> None:
        """These are the devices of the round."""
        asked = len(devices)
        if self._fractions is not None:
            devices, asked = self._at_work(devices)
        self._enough = self._barrier.enough(asked)
        for device in devices:
            self._enter(device)
        if self._barrier.deadline is not None:
            self._agenda.after(self._barrier.deadline, self._close, self._round, rank=Rank.DECIDE)

    def _at_work(self, devices: Sequence[int]) -> tuple[list[int], int]:
        """Those that have work in a round of these devices, and how many updates may come of it."""
        assert self._fractions is not None
        found = self._fractions.open(devices, self.now)
        return list(found), sum(found.values())

    def _start(self, device: int, round: int) -> None:
        """A device pulls the model and trains, if it is there."""
        if round != self._round:
            return
        now, away = self.now, self._barrier.fresh and self._lies.stays_away(device, round)
        wait = 0.0 if away else self._world.wait(device, now)
        if wait:
            self._vain()
            if wait < inf:
                self._agenda.after(wait, self._start, device, round, rank=Rank.START)
            return
        if self._fractions is not None:
            self._do(self._fractions, device)
            return
        self._turns[device] = turn = self._round if self._barrier.fresh else self._turns[device] + 1
        training = Arrival(device, turn, self._version, now, now)
        self._busy[device] = training
        self._begun.append((device, turn))
        if away:
            return
        seconds, arrives = self._world.attempt(device, turn, now)
        self._ends(training, seconds, arrives)

    def _ends(self, training: Arrival, seconds: float, arrives: bool) -> None:
        """So many seconds from now its update arrives, or its device leaves."""
        self._agenda.after(seconds, self._arrive if arrives else self._leave, training, rank=Rank.DELIVER)

    def _do(self, fractions: Fractions, device: int) -> None:
        """A device does what there is time for of its work, one client's after the other."""
        now = at = self.now
        for client, ready in fractions.jobs(device):
            at = max(at, ready)
            job = fractions.job(client, device, at)
            if job is None:
                return
            training = self._busy[client] = Arrival(client, self._round, self._version, at, at, job)
            self._begun.append((client, self._round))
            self._jobs.append(job)
            # A draw of its own for another's task, as for a backup.
            turn, task = (self._round, None) if client == device else (-self._round, client)
            seconds, arrives = self._world.attempt(device, turn, at, task, job.share)
            at += seconds
            self._ends(training, at - now, arrives)
            if not arrives:
                return
            fractions.note(job, seconds)

    def _arrive(self, training: Arrival) -> None:
        device = training.device
        if self._busy.get(device) is not training:
            return  # the round went on without it
        del self._busy[device]
        lost = self._world.loses(device, training.turn)
        self._spans.append(Span(device, training.began, self.now, "lost" if lost else "arrived"))
        if lost:
            self._lost.append((device, training.turn))
            self._vain()
        else:
            arrived = Arrival(device, training.turn, training.version, training.began, self.now, training.job)
            self._take(arrived)
            if len(self._waiting) >= self._enough and self._barrier.are_buffers_full(self._senders):
                self._release()
            elif self._barrier.backups and self._enough - len(self._waiting) <= self._barrier.backups:
                self._agenda.after(0.0, self._back_up, self._round, rank=Rank.DECIDE)
        if not self._barrier.fresh:
            self._go_on(self._places.next_after_update(device))

    def _back_up(self, round: int) -> None:
        """Start what is still awaited a second time, where the device that has the same examples is idle; once in a round."""
        if round != self._round or self._backed_up == round:
            return
        self._backed_up = round
        for training in self._busy.values():
            other = (training.device + 1) % len(self._turns)
            if other in self._busy or self._world.wait(other, self.now):
                continue
            # A draw of its own: the other device may be slow in one of the two tasks, and not in the other.
            seconds, arrives = self._world.attempt(other, -training.turn, self.now, training.device)
            if arrives:
                self._agenda.after(seconds, self._arrive, training, rank=Rank.DELIVER)

    def _take(self, arrival: Arrival) -> None:
        """Put an update to those of the next aggregate, or hold it for a later one."""
        self._in_vain = 0
        if self._barrier.once and arrival.device in self._senders:
            self._held.append(arrival)
        else:
            self._waiting.append(arrival)
            self._senders.add(arrival.device)
        if (waiting := len(self._waiting) + len(self._held)) > self._enough + self._patience:
            raise StalledError(
                f"after {self.now:g} simulated seconds {waiting:,} updates of a few devices wait for those of others, which an "
                "aggregate needs. Raise network.malicious_pace, or network.link.latency above 0."
            )

    def _leave(self, training: Arrival) -> None:
        """A device is gone, and its work with it."""
        device = training.device
        if self._busy.get(device) is not training:
            return
        del self._busy[device]
        self._interrupted.append((device, training.turn))
        self._vain()
        self._spans.append(Span(device, training.began, self.now, "interrupted"))
        if not self._barrier.fresh:
            self._go_on(self._places.next_after_dropout(device))

    def _vain(self) -> None:
        """Something came to nothing: the network lost an update, or a device left or waits."""
        self._in_vain += 1
        if self._in_vain > self._patience:
            raise StalledError(
                f"after {self.now:g} simulated seconds no update comes any more: {len(self._lost)} trainings since the last "
                f"aggregate were lost on their way, and the devices of {len(self._interrupted)} left before they were done. "
                "Let devices be there for longer (network.there), or lower network.compute, network.link or its loss."
            )

    def _close(self, round: int, why: str | None = None) -> None:
        """The deadline of a round, or its end for another reason."""
        if round == self._round:
            self._release(why)

    def _release(self, abandoned: str | None = None) -> None:
        arrived, least = len(self._waiting), self._barrier.least
        if abandoned is None and self._barrier.fresh and arrived < least:
            abandoned = f"{arrived} updates arrived, of at least {least}"
        late = tuple(self._busy.values()) if self._barrier.fresh else ()
        self._spans += [Span(one.device, one.began, self.now, "late") for one in late]
        self._released.append(
            AggregationEvent(
                at=self.now,
                version=self._version,
                begun=tuple(self._begun),
                arrivals=tuple(self._waiting),
                late=tuple((one.device, one.turn) for one in late),
                lost=tuple(self._lost),
                interrupted=tuple(self._interrupted),
                abandoned=abandoned,
                spans=tuple(self._spans),
                jobs=tuple(self._jobs),
            )
        )
        self._version += abandoned is None
        self._in_vain = 0
        self._waiting, self._begun, self._lost, self._interrupted, self._spans = [], [], [], [], []
        self._jobs = []
        self._senders.clear()
        held, self._held = self._held, []
        for arrival in held:  # of fewer devices than there were in this aggregate, so they do not fill the next one
            self._take(arrival)
        if self._barrier.fresh:
            self._open()
