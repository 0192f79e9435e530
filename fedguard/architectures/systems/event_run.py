"""One training around a server in simulated time: the simulation says what arrives when, and the server aggregates it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.architectures.rounds import RoundPlan, Rounds, count_outvoted
from fedguard.architectures.rule_context import ColluderPipeline, clipping, stack_starts
from fedguard.architectures.sides import Sides
from fedguard.architectures.systems.event_system import EventSystem
from fedguard.architectures.systems.trainings import LocalTrainings
from fedguard.architectures.times import moment, world
from fedguard.contracts import (
    Channel,
    Fate,
    LocalTraining,
    MaskedRound,
    Meeting,
    ReceivedRound,
    RoundReport,
    SentRound,
    Setup,
)
from fedguard.contracts.lying import Reported
from fedguard.errors import FedGuardError, PreconditionError, StalledError
from fedguard.simulated.course import AggregationEvent, ServerSimulation
from fedguard.simulated.world import World


def course_of(
    system: EventSystem, setup: Setup, world: World, kind: Callable[..., ServerSimulation] = ServerSimulation
) -> ServerSimulation:
    """The simulation of this training in this world."""
    barrier = system.barrier(setup.cell.clients)
    # In a session of secure aggregation a client has one masked input
    barrier = replace(barrier, once=barrier.once or setup.cell.masking.masked)
    chosen = partial(system.choose_clients, setup)
    fractions = system.fractions(setup, world)
    clients, rng = setup.cell.clients, setup.rng.child("course")

    def report(channel: Channel[Reported, []], device: int, truth: Reported, round: int) -> Reported:
        return setup.report(channel, device, truth, round) if channel in system.channels else truth

    return kind(world, barrier, clients.total, chosen, rng, fractions, report, clients.most_trainings)


def by_rounds(
    system: EventSystem, setup: Setup, world: World, course: ServerSimulation | None = None
) -> Iterator[tuple[AggregationEvent, int, bool]]:
    """The aggregation events of a training, each with its round, and whether it is the last one of the round.

    A round is one event if all start together; otherwise as many events as it takes to reach the updates of a round.
    """
    fresh = system.barrier(setup.cell.clients).fresh
    releases = (course or course_of(system, setup, world)).releases()
    for round in range(1, setup.cell.training.rounds + 1):
        held, last = 0, False
        while not last:
            release = next(releases)
            held += len(release.arrivals)
            last = fresh or held >= setup.cell.clients.expected
            yield release, round, last


def count_participation(system: EventSystem, setup: Setup, plan: Meeting, world: World) -> Meeting:
    """The meeting with the largest numbers of updates and trainings of one client in the simulation; never below the plan.

    Raises:
        StalledError: the simulation stalls before the training ends.
    """
    updates, ended = Counter[int](), Counter[int]()
    in_one = plan.in_one
    # Exact, not an estimate: times depend on no vector, so the training itself will follow the same events
    for release, _, _ in by_rounds(system, setup, world):
        each = Counter(one.client for one in release.arrivals)
        in_one = max(in_one, *each.values(), 1)
        updates += each
        ended.update(one.client for one in release.ended)
    most = max(plan.most or 0, *updates.values(), 1)
    return replace(plan, most=most, in_one=in_one, ended=max(most, *ended.values(), 1))


def check_course(system: EventSystem, setup: Setup, world: World) -> None:
    """Check that a training ends, and that its malicious clients at some time have an honest update to craft from.

    Raises:
        PreconditionError: the simulation stalls; or they never have one, and would send honest updates to the end.
    """
    sent = armed = False
    try:
        for release, round, _ in by_rounds(system, setup, world):
            acting = setup.acting(round)
            armed = armed or bool(acting and any(one.by not in acting for one in release.arrivals))
            # The rest cannot fail any more, unless trainings run out; a long training need not be simulated to its end
            if armed and setup.cell.clients.most_trainings is None:
                return
            sent = sent or bool(acting and release.arrivals)
    except StalledError as error:
        raise PreconditionError(f"under {system.name} {error}") from None
    if sent and not armed:
        raise _no_updates_error(system)


def _no_updates_error(system: EventSystem) -> PreconditionError:
    return PreconditionError(
        f"under {system.name} the malicious clients fill every aggregate here in which they act, and so no honest update ever "
        "comes from which they could craft: they would send honest ones. Raise network.malicious_pace, network.link.latency or "
        "training.rounds, or lower clients.malicious."
    )


@dataclass(frozen=True)
class EventPlan(RoundPlan):
    """What an aggregation event begins with; ``last`` if it is the last one of its round."""

    event: AggregationEvent
    last: bool


class EventRun(Rounds[EventPlan]):
    """One training, from its first aggregation event to its last report."""

    def __init__(self, system: EventSystem, setup: Setup) -> None:
        super().__init__(setup)
        self._system = system
        sessions = replace(setup, cell=system.sessions(setup.cell))
        self._receiver = setup.cell.masking.receiver(sessions)
        self._trainings = LocalTrainings(self.clients, setup.stopwatch)
        self._last: dict[int, Tensor] = {}
        self._version = 0  # how often the model has moved
        self._moves = {0: 0}  # by the number of aggregates: how often the model had moved by then
        self._armed = self._unarmed = False
        #: Whether a session of secure aggregation has begun before anything is trained, with all that start
        self._in_session = setup.cell.masking.masked and system.barrier(setup.cell.clients).fresh
        self._world = world(setup, self.model, system)

    def course(self) -> ServerSimulation:
        """The simulation of this training."""
        return course_of(self._system, self.setup, self._world)

    def reports(self) -> Iterator[RoundReport]:
        """A report of each round, with all its aggregates. Raises as `steps`."""
        parts: list[RoundReport] = []
        for part, last in self.steps():
            parts.append(part)
            if last:
                yield _join_reports(parts)
                parts = []

    def steps(self) -> Iterator[tuple[RoundReport, bool]]:
        """A report of each aggregate, and whether it is the last of its round.

        Raises:
            PreconditionError: malicious clients have acted without ever having an honest update to craft from.
        """
        for plan in self.plan_rounds():
            yield self.play_round(plan), plan.last
        if self._unarmed and not self._armed:
            raise self._nothing_to_craft_from()

    def _nothing_to_craft_from(self) -> FedGuardError:
        return _no_updates_error(self._system)

    def plan_rounds(self) -> Iterator[EventPlan]:
        setup = self.setup
        events = by_rounds(self._system, setup, self._world, self.course())
        for number, (event, round, last) in enumerate(events, 1):
            begun = tuple(sorted(one.client for one in event.begun))
            left = self._system.after_failures(setup, event, round)
            yield EventPlan(number, round, begun, setup.due(round) and last, left, last)

    def _missing(self, event: AggregationEvent) -> dict[int, Fate]:
        """Fates of clients in the session whose update does not arrive."""
        # They have agreed on keys, so their masks are in the sum and have to be opened
        return {one.client: one.fate for one in event.missing} if self._in_session else {}

    def receive_updates(self, sent: SentRound) -> ReceivedRound:
        return self._receiver.receive(sent)

    def train(self, plan: EventPlan, model: Tensor) -> SentRound:
        event, acting = plan.event, self.setup.acting(plan.round)
        self._trainings.begin(event.begun, model)
        # After begin: a training may begin and come to nothing before the same aggregate. An honest client has done the
        # training even if the network loses it, and its momentum has moved
        moved = self.setup.cell.training.worker_momentum > 0
        lost = {one.key for one in event.of_fate(Fate.LOST) if moved and one.client not in acting}
        self._trainings.lose(lost)
        self._trainings.drop(one.key for one in event.missing if one.key not in lost)
        return self._collect(plan, model, acting)

    @property
    def gain(self) -> float:
        return self._system.gain(self.setup.cell.clients)

    def aggregate(self, plan: EventPlan, received: ReceivedRound) -> Aggregate | str:
        """The rule's aggregate; or the noisy sum of clipped, weighted updates, if the server is trusted to add noise."""
        setup, system = self.setup, self._system
        if plan.event.abandoned:
            return plan.event.abandoned
        if self._private is None or self._noise is None:
            return system.aggregate(setup, self.model, plan.number, received, self.states)
        rng = setup.noise_rng.child("privacy", plan.number)
        weights = torch.tensor([one.scale for one in received.sent.trainings])
        vector, self._noise = self._private.release(received.rows, self._noise, rng, weights)
        if len(weights):
            # A function of published models alone: it needs no noise, and no clip
            known = system.toward(torch.zeros_like(received.rows), [*stack_starts(received)], self.model)
            vector = vector + weights @ known / system.updates(setup.cell.clients)
        return Aggregate(vector, None, ())

    def _weigh(self, event: AggregationEvent) -> dict[int, float]:
        """The weight of each client's updates in the noisy sum; silent and not finite ones count, too.

        Under masks a client scales its update itself before it is clipped, so that its weight in the sum is 1.
        """
        weights: dict[int, float] = {}
        for one in event.arrivals:
            weight = self._system.weight(self._age(one, event)) if self._private else 1.0
            weights[one.client] = weights.get(one.client, 0.0) + weight
        return weights

    def _collect(self, plan: EventPlan, given: Tensor, acting: Collection[int]) -> SentRound:
        """The updates that arrived, with the malicious clients' rows together."""
        setup, model, clients, number, release = self.setup, self.model, self.clients, plan.number, plan.event
        # Sorted by device: the order of the rows tells a rule nothing about the order of arrival
        arrivals = sorted(release.arrivals, key=lambda one: one.key)
        honest = [one for one in arrivals if one.by not in acting]
        malicious = [one for one in arrivals if one.by in acting]
        # Without any honest update so far there is nothing to craft from: they send honest ones
        if not honest and not self._last:
            honest, malicious = malicious, []
            self._unarmed = self._unarmed or bool(honest)
        self._armed = self._armed or bool(malicious)
        # Before the next line forgets the models that they started from
        aged = {one.key: self._measure_age(one, release) for one in arrivals}
        self._trainings.drop(one.key for one in malicious)
        clients.begin([one.client for one in arrivals])
        if malicious:
            with setup.stopwatch.stage("attack"):
                heard = clients.malicious.choose_senders(tuple(one.client for one in malicious), number, model)
                malicious = [one for one in malicious if one.client in heard]
        rows = torch.empty(len(honest) + len(malicious), len(model))
        devices = tuple(tuple(one.client for one in side) for side in (honest, malicious))
        sides = Sides.split_rows(setup.rng.child("order", number), rows, *devices)
        self._train(honest, {*acting, *sides.malicious}, sides.honest_rows)
        if malicious:
            with setup.stopwatch.stage("attack"):
                self._craft(sides, acting, number, plan.due)
        for side, part in ((honest, sides.honest_rows), (malicious, sides.malicious_rows)):
            weights = [aged[one.key].scale for one in side]
            # Under masks each client scales its own update, and a malicious one does not
            by_client = setup.cell.masking.masked and side is malicious
            if set(weights) - {1.0} and not by_client and self._private is None:  # who adds noise clips first
                part.mul_(torch.tensor(weights, dtype=part.dtype)[:, None])
        clients.local.trim(rows)
        ordered = tuple(aged[one.key] for one in sides.in_order(honest, malicious))
        missing = self._missing(release)
        return SentRound(number, given, rows, sides.order, frozenset(sides.malicious), missing, ordered)

    def _age(self, one: LocalTraining, release: AggregationEvent) -> int:
        """Staleness: how often the model moved between the pull and this aggregate."""
        return self._moves[release.version] - self._moves[one.version]

    def _measure_age(self, one: LocalTraining, release: AggregationEvent) -> LocalTraining:
        """A training of an update that has arrived, with the model that it began with, and its age."""
        age, start, version = self._age(one, release), self._trainings.start(one.key), self._moves[one.version]
        return replace(one, start=start, version=version, staleness=age, scale=self._system.weight(age))

    def _train(self, honest: Sequence[LocalTraining], acting: Collection[int], rows: Tensor) -> None:
        if not honest:
            return
        keys = [one.key for one in honest]
        starts = [self._trainings.start(key) for key in keys]
        self._trainings.collect_updates(keys, acting, rows)
        self.clients.local.learn(keys, self.model, rows)
        if self._private is None and (known := self._system.toward(rows, starts, self.model)) is not rows:
            rows.copy_(known)
        if acting:
            seen = zip((one.client for one in honest), rows.clone(), strict=True)
            self._last.update((client, row) for client, row in seen if client not in acting)

    def _craft(self, sides: Sides, acting: Collection[int], number: int, due: bool) -> None:
        """Let the malicious clients craft their rows from the honest updates of this aggregate, or else the last ones."""
        states = self._system.visible_states(self.states)
        known_setup = clipping(self.setup, self.clip)
        known = partial(ColluderPipeline, known_setup, self.model, number, states, version=self._version)
        if sides.honest:
            self.clients.malicious.craft(self.model, number, sides, known, measure=due)
            self._replay(sides, number)
            return
        # Crafted for all malicious clients at once on the last honest updates: alone in its aggregate, a client would have no
        # honest row to craft from; only the rows of those that arrived are kept
        all_of_them = tuple(sorted({*acting, *sides.malicious}))
        others = tuple(sorted(self._last.keys() - all_of_them))
        cut = len(others)
        rows = torch.empty(cut + len(all_of_them), len(self.model))
        rows[:cut] = torch.stack([self._last[client] for client in others])
        whole = Sides(others, rows[:cut], all_of_them, rows[cut:], others + all_of_them)
        self.clients.malicious.craft(self.model, number, whole, known, measure=due)
        sides.malicious_rows.copy_(rows[[cut + all_of_them.index(client) for client in sides.malicious]])
        self._replay(sides, number)

    def _replay(self, sides: Sides, number: int) -> None:
        """If the learner has a replay, put in what malicious actors sent, too; it is not a row of its own."""
        if self._system.replays:
            keys = [(client, number) for client in sides.malicious]
            self.clients.local.learn(keys, self.model, sides.malicious_rows)

    def complete_report(self, plan: EventPlan, received: ReceivedRound, report: RoundReport) -> RoundReport:
        cell, event, sent = self.setup.cell, plan.event, received.sent
        missing = self._missing(event)
        # With noise every aggregate counts: the plan of the noise has ages that are known before anything is trained
        self._version += cell.private or not torch.equal(self.model, sent.model)
        self._moves[event.version + 1] = self._version
        fates = [(one.client, one.fate) for one in event.missing]
        found = moment(
            self._world,
            event.at,
            tuple(self._age(one, event) for one in event.arrivals),
            outvoted=count_outvoted(received),
            trainings=event.ended,
            acting=self.setup.acting(plan.round),
            weighed=(self._weigh(event),) if cell.noise.unit == "client" and not event.abandoned else (),
        )
        fates += [one for one in report.fates if one[0] not in missing]
        return replace(report, fates=tuple(fates), moment=found)


def _join_reports(parts: Sequence[RoundReport]) -> RoundReport:
    """One report for the aggregates of a round, with the metrics of the last one."""
    if len(parts) == 1:
        return parts[0]
    last = parts[-1]
    moments = [part.moment for part in parts if part.moment is not None]
    abandoned = [part.abandoned for part in parts]
    out = [part.excluded for part in parts if part.excluded is not None]
    return replace(
        last,
        clients=tuple(client for part in parts for client in part.clients),
        malicious=frozenset(client for part in parts for client in part.malicious),
        behind=tuple(row for part in parts for row in part.behind),
        assumed_f=sum(part.assumed_f for part in parts),
        fates=tuple(pair for part in parts for pair in part.fates),
        chosen=tuple(client for part in parts for client in part.chosen),
        excluded=tuple(client for part in out for client in part) if out else None,
        # A round with one aggregate has moved the model, whatever became of the others
        abandoned=last.abandoned if all(abandoned) else None,
        watched=tuple(one for part in parts for one in part.watched),
        masked=_together([part.masked for part in parts if part.masked is not None]),
        moment=replace(
            moments[-1],
            staleness=tuple(one for part in moments for one in part.staleness),
            releases=len(parts),
            outvoted=sum(part.outvoted for part in moments),
            trainings=tuple(one for part in moments for one in part.trainings),
            weighed=tuple(one for part in moments for one in part.weighed),
        ),
    )


def _together(parts: Sequence[MaskedRound]) -> MaskedRound | None:
    """The sessions of several aggregates as one; the error is the root mean square over the sessions that have one."""
    if not parts:
        return None
    errors = [part.error for part in parts if part.error is not None]
    survivors = sum(part.survivors for part in parts)
    return MaskedRound(
        clients=sum(part.clients for part in parts),
        sessions=sum(part.sessions for part in parts),
        aborted=tuple(why for part in parts for why in part.aborted),
        survivors=survivors,
        # The worst of them: a client is hidden no better than in its smallest sum
        anonymity=min((part.anonymity for part in parts if part.anonymity is not None), default=None),
        contributors=min((part.contributors for part in parts if part.contributors is not None), default=None),
        error=(sum(error**2 for error in errors) / len(errors)) ** 0.5 if errors else None,
        clipped=sum(part.survivors * part.clipped for part in parts) / max(survivors, 1),
        bytes_up=sum(part.bytes_up for part in parts),
        bytes_down=sum(part.bytes_down for part in parts),
    )
