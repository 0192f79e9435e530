"""Google's system: more devices are asked than needed, the first to report count (Bonawitz et al., MLSys 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Combination, Federation, Participation, PositiveFloat, Setup, Share
from fedguard.simulated.barriers import Barrier, k_of_n


@dataclass(frozen=True, kw_only=True)
class Google(EventServer):
    """More devices are asked than are needed, and the first to report count.

    $w <- w + server_lr * R(u_1, ..., u_goal)$ with the first updates to come of $round(over * goal)$ devices.

    The goal is ``clients.per_round``. A round closes when so many have reported, and whoever is late has trained in vain. At
    the end of the report window $ceil(least * goal)$ updates are enough; with fewer the round is abandoned. The rule is told
    the share of malicious clients among all, of those that arrived; but malicious clients that answer first come to
    $min(1, over * f)$ of a round.

    Under secure aggregation all who are asked agree on keys, and the late are its dropouts. Each group of
    ``secure_aggregation: {groups: k}`` is that of one of the paper's aggregators: a session of its own, and where too many of
    its devices are late, its sum alone is lost.

    Args:
        over: how many devices are asked for each one that is needed; at most all are.
        window: simulated seconds from the start of a round to the end of its reports.
        least: the share of the goal that is enough then.
    """

    name = "google"
    source = "Bonawitz et al., Towards Federated Learning at Scale: System Design, MLSys 2019"

    over: Annotated[float, Ge(1)] = 1.3
    window: PositiveFloat = 120.0
    least: Share = 0.8

    def barrier(self, clients: Participation) -> Barrier:
        goal = clients.expected
        return k_of_n(goal, self.window, max(1, math.ceil(self.least * goal - 1e-9)))

    def asked(self, clients: Participation) -> Participation:
        """Who is asked: as the suite says, but more."""
        return replace(clients, per_round=min(clients.total, round(self.over * clients.expected)))

    def chosen(self, setup: Setup, round: int) -> Sequence[int]:
        return self.asked(setup.participation).choose(setup.rng.child("participation", round), round)

    def sessions(self, federation: Federation) -> Federation:
        """All who are asked agree on keys, and as many may fall silent as leave the least that a round needs."""
        clients, protocol = self.asked(federation.clients), federation.protocol
        kept = self.barrier(federation.clients).least / clients.expected * (1 - protocol.dropout.rate)
        silent = replace(protocol.dropout, rate=min(1 - kept, 1 - 1e-9))
        return replace(federation, clients=clients, protocol=replace(protocol, dropout=silent))

    def reasons(self, cell: Combination) -> Iterator[str]:
        yield from super().reasons(cell)
        if cell.clients.sampling == "cyclic":
            yield (
                "google asks more devices than a round needs, and under clients.sampling: cyclic exactly these take turns. "
                "Use fixed or poisson."
            )
