"""DeCaf: each device trains the share of its examples that the deadline leaves time for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Cell, Participation, PositiveFloat, PositiveInt, Setup, Share
from fedguard.contracts.channels import AVAILABILITY, RATE
from fedguard.simulated.barriers import Barrier, k_of_n
from fedguard.simulated.fractions import Deadline, Fractions
from fedguard.simulated.world import World


@dataclass(frozen=True, kw_only=True)
class DeCaf(EventServer):
    """Each device trains what share of its examples the deadline leaves time for.

    $w <- w + server_lr * R(u_1, ..., u_n)$ with the updates that have come by the deadline D. Device i stops after the share
    $p_i = min(1, r_i (D - t) / n_i)$ of its work, where t is its start plus the time of its messages, and $r_i$ its rate in
    the last trainings. A device without history trains the share ``least``. If p times the predicted availability is below
    ``least``, the examples move to the answering device of the trusted set with the largest expected share, which trains on
    them besides its own; if that is below ``least`` as well, the client is dropped from the round
    (`fedguard.simulated.fractions`).

    A client claims $p_i n_i$ examples, which are the weights of `weighted_mean`. The trusted set is one party: the device that
    gets examples reads them, and a malicious one crafts the update of both clients. So the set is also one unit of privacy.

    Args:
        deadline: D, simulated seconds from the start of a round.
        least: smallest share of its work for which a device is asked; 1 for all or nothing.
        trusted: devices in a trusted set; device i belongs to set $floor(i / trusted)$; with 1 no examples move.
        history: m, the number of last trainings (rate: the slowest of them) and last rounds (availability) of a prediction.
    """

    name = "decaf"
    source = (
        "DeCaf, in overviews of decentralized training: deadlines, fractions, trusted sets; predictions as told here"
    )

    channels = frozenset({RATE, AVAILABILITY})

    deadline: PositiveFloat = 10.0
    least: Share = 0.1
    trusted: PositiveInt = 1
    history: Annotated[int, Ge(1), Le(1000)] = 5

    @property
    def shows_others(self) -> str:
        return (
            f"Trusted sets of {self.trusted} devices are one party each, with all of their examples."
            if self.trusted > 1
            else ""
        )

    def barrier(self, clients: Participation) -> Barrier:
        # All that are chosen, not a goal: nobody knows at the start how many will have work, and the deadline ends the round
        return k_of_n(clients.most, self.deadline)

    def updates(self, clients: Participation) -> int:
        return clients.expected

    def reasons(self, cell: Cell) -> Iterator[str]:
        if cell.masking.masked:
            yield (
                "under decaf who trains whose examples is settled anew in each round, and a device may send two updates in it. "
                "Set secure_aggregation: none, or use google, which has a deadline, too."
            )
            return
        if cell.private:
            yield (
                "under decaf a client's steps follow from its number of examples, which noise would have to hide, and examples "
                "that move lie with two devices: the trusted set would be the unit. Leave out privacy, or use google."
            )
            return
        yield from super().reasons(cell)
        if self.trusted > 1 and cell.training.worker_momentum:
            yield (
                "the device that trains on a client's examples under decaf has not its momentum. Set trusted: 1, or "
                "training.worker_momentum: 0."
            )
        if cell.network is not None and 2 * cell.network.link.latency >= self.deadline:
            yield (
                f"two messages take {2 * cell.network.link.latency:g} simulated seconds, and decaf has "
                f"{self.deadline:g} of them: no update ever comes in time. Raise deadline above that."
            )

    def fractions(self, setup: Setup, world: World) -> Fractions:
        law = Deadline(seconds=self.deadline, least=self.least, trusted=self.trusted, history=self.history)
        # An input is float32, a label is one number of 8 bytes.
        example = 4 * math.prod(setup.task.shape) + 8
        freight = [example * size for size in setup.task.sizes]
        return Fractions(law, world, freight, setup.rng.child("trusted"), setup.report)
