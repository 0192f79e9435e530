"""A server in simulated time: speeds, links and a barrier determine who trains when, and this what is learned."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import torch
from torch import Tensor

from fedguard.architectures.systems.event_run import EventRun, by_rounds, check_course, count_participation, course_of
from fedguard.architectures.systems.event_system import EventSystem
from fedguard.architectures.times import least_of, world
from fedguard.contracts import (
    Cell,
    Exposure,
    InferenceAttack,
    LocalTraining,
    Meeting,
    Participation,
    RoundObservation,
    RoundReport,
    Setup,
    Sight,
)
from fedguard.errors import ConfigError, PreconditionError, StalledError
from fedguard.secagg.planning import check_sessions
from fedguard.simulated.barriers import Barrier


class EventServer(EventSystem):
    """Base of all servers in simulated time. A suite without ``network:`` has the defaults of `fedguard.contracts.Network`.

    Malicious clients train and craft at the time of an aggregate, from its model; their training takes the time that the
    network gives them. They see the honest updates of their aggregate. If it has none (each update may be an aggregate of its
    own), they see the last update of each honest client; before the first honest update they send honest ones.
    """

    in_time = True
    exposes = Exposure(
        server=Sight.EACH_UPDATE | Sight.GROUP_SUMS | Sight.SUM | Sight.MODEL | Sight.TIMES,
        clients=Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE,
    )

    def meeting(self, clients: Participation, rounds: int) -> Meeting:
        """How updates meet in ``rounds`` rounds.

        If all start together, a client is in a round once. Under bounded delay the slowest of n clients makes at most one push
        a round, since there are n pushes in a round, and no client makes more than tau + 1 more. This holds if all updates
        arrive; otherwise the simulation counts them. With other barriers only ``most_trainings`` is a bound. A client that
        does not start with the others may be in a buffer more than once.
        """
        barrier = self.barrier(clients)
        if barrier.fresh:
            # As under `server`: who is late or lost only makes it fewer
            return Meeting(updates=self.updates(clients), most=clients.participations(rounds))
        budget = inf if clients.most_trainings is None else clients.most_trainings
        # A bound for the accountant: too high a value costs privacy budget, too low a value would make epsilon false
        ahead = min(rounds + barrier.ahead + 1, budget)
        most = int(ahead) if ahead < inf else None
        return Meeting(
            updates=self.updates(clients),
            most=most,
            in_one=1 if barrier.once else int(min(barrier.count, ahead)),
            if_all_arrive=ahead < budget,
        )

    @property
    def carries(self) -> bool:
        """Whether its rounds suit algorithms that carry more than updates from one round to the next, as rounds of `server` do.

        All updates of an aggregate were then trained in its round, from its model, by clients that received what the server
        carries.
        """
        return False

    def resolve_meeting(self, setup: Setup) -> Meeting | None:
        plan = setup.cell.meeting
        if plan is None or plan.most is None or not plan.if_all_arrive or not setup.cell.loses:
            return plan
        try:
            # The world needs only the size of the model, so an empty tensor will do
            return count_participation(self, setup, plan, world(setup, torch.empty(setup.task.dim), self))
        except StalledError:  # `check` reports it before anything is trained
            return plan

    def counts_trainings(self, clients: Participation) -> bool:
        return not self.barrier(clients).fresh

    def spec(self) -> dict[str, Any]:
        """As for any algorithm; parameters that are None are left out."""
        return {key: value for key, value in super().spec().items() if value is not None}

    def reasons(self, cell: Cell) -> Iterator[str]:
        name, barrier = self.name, self.barrier(cell.clients)
        if cell.masking.masked:
            yield from self._session_refusals(cell, barrier)
        if cell.private:
            yield from self._noisy_reasons(cell, barrier)
        if not cell.algorithm.only_updates and (cell.private or not self.carries):
            yield (
                f"{cell.algorithm.name} carries more than updates from one round to the next, and {name} carries "
                "updates alone. Use fedavg, fedsgd or fedprox, or server."
            )
        if cell.inference is not None and not barrier.fresh:
            yield from self._inference_refusals(cell, cell.inference)
        if barrier.fresh and barrier.deadline is None and cell.loses:
            yield (
                f"under {name} the server waits for each update of a round, and one that network loses would be waited for "
                "for ever. Leave out network.link.loss and network.availability, or use google, which has a deadline."
            )
        if barrier.fresh:
            return
        if cell.clients.sampling == "cyclic" or cell.clients.schedule:
            yield (
                f"under {name} who trains next follows from who is done. Leave out clients.sampling: cyclic and "
                "clients.schedule."
            )
        most, needed = cell.clients.most_trainings, cell.training.rounds * max(cell.clients.expected, barrier.count)
        # A necessary condition only: fast clients may use up their trainings early, which `check_course` finds out
        if most is not None and most * cell.clients.total < needed:
            yield (
                f"training.rounds asks for {needed} updates, and {cell.clients.total} clients begin {most} trainings each at "
                "most. Raise clients.most_trainings, or lower training.rounds."
            )
        # With `once` every row of an aggregate has another client behind it
        stages = () if barrier.once else cell.pipeline.stages
        looking = [stage.name for stage in stages if stage.reads_clients and not stage.meets_again]
        if looking:
            yield (
                f"{' and '.join(looking)} looks up the client behind each row, and under {name} a client may be behind two. "
                "Use server."
            )

    def _noisy_reasons(self, cell: Cell, barrier: Barrier) -> Iterator[str]:
        """Why the guarantee of the noise would not hold here."""
        name, noise = self.name, cell.noise
        if noise.added_by == "server" and Sight.EACH_UPDATE not in self.exposes.server:
            yield (
                f"a server that adds noise clips each update, and the server of {name} has sums or means of several. Use "
                "privacy: {name: record}, or fedbuff, google, parameter_server or server."
            )
        # A single row has nothing to be weighed against
        if cell.pipeline.rule.by_noise and barrier.count == 1 and not barrier.fresh:
            yield (
                f"{cell.pipeline.rule.name} weighs the updates of an aggregate against each other, and under {name} each is an "
                "aggregate of its own. Use fedbuff, or mean."
            )

    def _inference_refusals(self, cell: Cell, attack: InferenceAttack) -> Iterator[str]:
        """Why an attack on privacy does not work where updates of several models meet."""
        if attack.active:
            yield (
                f"{attack.name} sends another model in a round, and under {self.name} the updates of a round began with "
                "several. Use another attack, or google, parameter_server or server."
            )
        single = Sight.EACH_UPDATE in self.exposes.server and not cell.masking.masked
        if attack.watches != "model" and cell.noise.added_by != "server" and not single:
            yield (
                f"{attack.name} reads a sum of updates of one model, and under {self.name} those of several meet in a sum. Use "
                "google, parameter_server or server."
            )

    def _session_refusals(self, cell: Cell, barrier: Barrier) -> Iterator[str]:
        """Why sessions of secure aggregation cannot sum its updates."""
        if barrier.count == 1 and not barrier.fresh:
            yield (
                f"a session of secure aggregation sums several updates, and under {self.name} each counts by itself. "
                "Set secure_aggregation: none, or use fedbuff or server."
            )
        elif not barrier.fresh and barrier.count > cell.clients.total:
            yield (
                f"a client is in a session of secure aggregation once, and {barrier.count} updates of {cell.clients.total} "
                "clients never meet in one. Lower buffer, or set secure_aggregation: none."
            )
        elif cell.availability.may_leave and barrier.fresh and not barrier.selection:
            yield (
                "the keys of a session of secure aggregation are agreed on when a round starts, and a device that comes later "
                f"has no part in it. Leave out network.availability, use fedbuff, or set secure_aggregation: none under "
                f"{self.name}."
            )
        else:
            try:
                check_sessions(self.sessions(cell))
            except ConfigError as error:
                late = " Here delta counts who may be late, too: raise least." if barrier.deadline else ""
                yield f"a session of secure aggregation under {self.name}: {error}{late}"

    def check(self, setup: Setup) -> None:
        """Refuse settings with aggregates that never come, rounds that are all abandoned, or attacks that never act."""
        barrier = self.barrier(setup.cell.clients)
        least = sorted(least_of(setup, self))
        # Without losses and with time passing, a first aggregate always comes: this saves a simulation
        if not barrier.fresh and setup.cell.network is not None and (setup.cell.loses or not least[0]):
            try:
                next(course_of(self, setup, world(setup, torch.empty(setup.task.dim), self)).releases())
            except StalledError as error:
                raise PreconditionError(f"under {self.name} {error}") from None
        # The fewest updates that a round needs come from the fastest devices: if not even these make it, no round does
        seconds = least[barrier.least - 1]
        if barrier.deadline is not None and seconds > barrier.deadline * (1 + 1e-9):
            raise PreconditionError(
                f"each round of {self.name} would be abandoned: it ends after {barrier.deadline:g} s, and needs "
                f"{barrier.least} updates by then, which take {seconds:.3g} s at least. Raise the window, or lower "
                "network.compute or network.link."
            )
        if setup.cell.attack is not None or setup.cell.clients.most_trainings is not None:
            check_course(self, setup, world(setup, torch.empty(setup.task.dim), self))

    def participants(self, setup: Setup, rounds: range) -> tuple[LocalTraining, ...]:
        first: dict[int, LocalTraining] = {}
        for event, round, _ in by_rounds(self, setup, world(setup, torch.empty(setup.task.dim), self)):
            if round in rounds:
                arrivals = self.after_failures(setup, event, round).arrivals
                first.update((one.client, one) for one in arrivals if one.client not in first)
        return tuple(first.values())

    def unscale_updates(self, one: RoundObservation) -> Tensor:
        scales = torch.tensor([training.scale for training in one.sent.trainings])
        starts = [training.start for training in one.sent.trainings if training.start is not None]
        return one.sent.updates / scales[:, None] - self.toward(
            torch.zeros_like(one.sent.updates), starts, one.sent.model
        )

    def as_trained(self, setup: Setup) -> Setup:
        """The set-up with what the architecture adds, such as sums of updates that nobody sees one by one."""
        return setup

    def run(self, setup: Setup) -> Iterator[RoundReport]:
        return EventRun(self, self.as_trained(setup)).reports()

    def aggregates(self, setup: Setup) -> Iterator[RoundReport]:
        return (report for report, _ in EventRun(self, self.as_trained(setup)).steps())
