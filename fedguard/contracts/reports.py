"""What happened in a round, as seen by an observer that sees everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedguard.contracts.tasks import Evaluation, Trigger
from fedguard.contracts.wire import UNUSABLE, Fate, LocalTraining, MaskedRound, RoundObservation


@dataclass(frozen=True)
class RoundTiming:
    """When a round happened in simulated time, and the resources used up to then.

    Attributes:
        seconds: seconds since the start, at its end.
        computed: seconds of computation, of all devices together.
        joules: energy of all devices for computing, sending and receiving.
        bytes_up, bytes_down: bytes sent by devices and to them.
        staleness: for each update that reached the server in this round, the number of times that the model had moved since the
            version from which it was trained.
        trainings: local trainings that ended in this round, in the order in which they ended.
        acting: malicious clients that acted in this round, whether or not their updates arrived.
        releases: number of aggregations of the server in this round.
        outvoted: number of these with more malicious rows than the rule assumed.
        weighed: for each noisy sum that was released, by client, the total weight of its updates in it.
    """

    seconds: float
    computed: float
    joules: float
    bytes_up: int
    bytes_down: int
    staleness: tuple[int, ...] = ()
    releases: int = 1
    outvoted: int = 0
    trainings: tuple[LocalTraining, ...] = ()
    acting: frozenset[int] = frozenset()
    weighed: tuple[Mapping[int, float], ...] = ()


@dataclass(frozen=True)
class NodesReport:
    """The nodes of a training without a server after a round, each with its own model.

    Attributes:
        messages: number of vectors that nodes have sent to each other since the start.
        links: (source, destination) of each pair of nodes of which the second ever receives messages from the first.
        outvoted: number of aggregates of honest nodes in this round with more malicious rows than the rule assumed.
        abandoned: number of aggregates of honest nodes in this round that changed nothing, since the rule could not run.
        honest: the honest nodes; empty in rounds that are not evaluated, where the values below are undefined.
        accuracy: accuracy of each honest node's model.
        mean_model: accuracy of the mean of these models. No node has this model, and it may be good even if no node's own is.
        traffic: bytes over each of the links since the start; empty if all messages or links are alike.
        backlog: simulated seconds until the longest queue of messages is sent; None if nothing queues.
        consensus: $((1/h) sum_i |x_i - mean|^2)^(1/2)$ over these models.
    """

    messages: int
    links: tuple[tuple[int, int], ...] = ()
    outvoted: int = 0
    abandoned: int = 0
    honest: tuple[int, ...] = ()
    accuracy: tuple[float, ...] = ()
    mean_model: float | None = None
    consensus: float | None = None
    traffic: tuple[int, ...] = ()
    backlog: float | None = None


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round.

    Attributes:
        round: from 1.
        model: float32 ``[d]``, after the round.
        clients: clients with an update that reached the server, including those it left out.
        malicious: those of them that acted for the attack.
        assumed_f: the f that the rule assumed in this round: the number of rows that may be malicious.
        fates: each client with an update that came to nothing, with its fate.
        excluded: clients with an update of weight 0; None for rules without weights.
        abandoned: why the round changed nothing; None if it did.
        evaluation: of the new model, in rounds in which it was evaluated; the metrics below exist only in these rounds too.
        aggregate: the metrics of the aggregate (`fedguard.metrics.aggregate`); None without one, or with fewer than two honest
            updates.
        backdoor: success rate of the trigger on the new model; None without a backdoor.
        planted: the trigger as it was in this round, and its target.
        notes: what the attack reports about itself, see `PoisonAttack.notes`.
        behind: the clients behind each row that the rule got: one client, or the clients of a sum.
        chosen: clients that were asked to train.
        clip: clipping bound of an update, if the server clips for privacy.
        masked: result of secure aggregation; None if it is off.
        watched: each aggregate of the round, for an observer that watches the round.
        moment: time and cost of the round in simulated time; None without a simulated network.
        effect: $<R, mu> / |mu|^2$ under the attack, under each of its siblings, and under neither ("none"), as probes of the
            rule show it; None for an attack without siblings.
        nodes: the nodes of a training without a server. Then ``model`` is the mean of the honest nodes' models, and
            ``evaluation`` and ``backdoor`` are means over these nodes.
        banned: clients that are excluded from later rounds.
        moments: number of evaluation times that ``model`` accounts for; 1 if rounds are counted.
        statistics: float32 ``[s]``: the running statistics with which the model was evaluated; None without any.
        floored: variances below 0 that clients have sent as running statistics up to now, and that were taken for 0.
    """

    round: int
    model: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int] = frozenset()
    assumed_f: int = 0
    fates: tuple[tuple[int, Fate], ...] = ()
    excluded: tuple[int, ...] | None = None
    abandoned: str | None = None
    evaluation: Evaluation | None = None
    aggregate: Mapping[str, Any] | None = None
    backdoor: float | None = None
    planted: tuple[Trigger, int] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    behind: tuple[tuple[int, ...], ...] = ()
    chosen: tuple[int, ...] = ()
    clip: float | None = None
    masked: MaskedRound | None = None
    watched: tuple[RoundObservation, ...] = ()
    effect: Mapping[str, float] | None = None
    moment: RoundTiming | None = None
    nodes: NodesReport | None = None
    banned: tuple[int, ...] = ()
    moments: int = 1
    statistics: Tensor | None = None
    floored: int = 0

    def of_fate(self, *fates: Fate) -> tuple[int, ...]:
        """The clients with an update of one of these fates."""
        return tuple(client for client, fate in self.fates if fate in fates)

    @property
    def without_row(self) -> tuple[int, ...]:
        """Clients with an update that reached the server and is in no row: of sums, those that the protocol has excluded."""
        return tuple((Counter(self.clients) - Counter(client for row in self.behind for client in row)).elements())

    @property
    def not_finite(self) -> tuple[int, ...]:
        """Clients with an update that held NaN, infinity, or values too large to add up."""
        return self.of_fate(*UNUSABLE)
