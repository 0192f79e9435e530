"""What happened in a round, as seen by an observer that sees everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from fedguard.contracts.tasks import Evaluation, Trigger


@dataclass(frozen=True, eq=False)
class Push:
    """When one update arrived, and from which model it was trained.

    Attributes:
        staleness: number of times that the model has moved since that version; an aggregate that does not change it does not
            count.
        at: simulated seconds of the arrival.
        scale: factor by which the architecture has multiplied the update for its staleness.
        start: float32 ``[d]``: the model, shared and not copied.
        share: share of its examples on which the client claims to have trained.
        version: version of that model: how often the initial one had moved by then.
    """

    staleness: int
    at: float
    scale: float
    start: Tensor
    share: float = 1.0
    version: int = 0


@dataclass(frozen=True)
class RoundObservation:
    """One round, as seen by an observer that sees everything. The core derives from it what the server sees.

    Attributes:
        sent: float32 ``[d]``: the model that the clients received.
        after: float32 ``[d]``: the model after the round.
        clients: the client behind each row of `updates`.
        updates: float32 ``[n, d]``: what the clients sent.
        behind: the clients behind each row of `rows`.
        rows: float32 ``[m, d]``: what the server has: each update, or the means behind its sums.
        aggregate: float32 ``[d]``: the aggregate of the round, with any noise; None if it was abandoned.
        inputs: float64 ``[d]`` by client: its input to a session, rounded and noisy, as if it were alone there; empty without
            masks.
        models: float32 ``[n, d]``: without a server, the model from which each node trained; None if all share one.
        heard: float32 ``[m, d]``: the messages of the round that the observing nodes received, in order.
        malicious: the malicious ones among the clients.
        pushes: arrival and model of each row of `updates`; empty without simulated time.
        gain: factor of the aggregate before the server's step.
    """

    sent: Tensor
    after: Tensor
    clients: tuple[int, ...]
    updates: Tensor
    behind: tuple[tuple[int, ...], ...]
    rows: Tensor
    aggregate: Tensor | None
    inputs: Mapping[int, Tensor] = field(default_factory=dict)
    models: Tensor | None = None
    heard: Tensor | None = None
    malicious: frozenset[int] = frozenset()
    pushes: tuple[Push, ...] = ()
    gain: float = 1.0


@dataclass(frozen=True)
class MaskedRound:
    """The result of the sessions of secure aggregation in one round.

    Attributes:
        clients: number of clients that took part.
        sessions: number of sessions; one for all clients, or one for each group.
        aborted: why some of them gave no sum.
        survivors: number of clients with an update in a sum.
        anonymity: the fewest clients in any sum that the server can form, less those that may collude with it; None without a
            sum.
        contributors: the fewest clients in a sum that are sure to have added their share of any noise: all but the malicious
            ones and those that may collude.
        error: norm of (decoded mean - true mean of the same clients' updates) over the norm of the true mean; None if there is
            no sum, or the true mean is zero. Over groups, the root of the sums of squares.
        clipped: share of the honest updates' coordinates that the encoding clipped.
        bytes_up, bytes_down: bytes that all clients sent, and bytes that the server sent.
        left_out: clients that the protocol excluded from the sums as malicious.
    """

    clients: int
    sessions: int
    aborted: tuple[str, ...]
    survivors: int
    anonymity: int | None
    contributors: int | None
    error: float | None
    clipped: float
    bytes_up: int
    bytes_down: int
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """One local training of one client, from its download of the model on.

    Attributes:
        began, ended: simulated seconds.
        fate: fate of its update: ``arrived``; ``late`` if an aggregate did not wait for it, which ended the training; ``lost``
            by the network; ``interrupted`` if its device went offline.
    """

    client: int
    began: float
    ended: float
    fate: Literal["arrived", "late", "lost", "interrupted"]


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
        late: clients that the server did not wait for.
        lost: clients with an update that the network lost.
        interrupted: clients that went offline before their update had arrived.
        spans: local trainings that ended in this round, in the order in which they ended.
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
    late: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    releases: int = 1
    outvoted: int = 0
    interrupted: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()
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
        told: the f that the rule assumed in this round: the number of rows that may be malicious.
        not_finite: clients with an update that held NaN, infinity, or values too large to add up. The server dropped these
            updates, or they could not be encoded.
        excluded: clients with an update of weight 0; None for rules without weights.
        abandoned: why the round changed nothing; None if it did.
        evaluation: of the new model, in rounds in which it was evaluated; the metrics below exist only in these rounds too.
        aggregate: the metrics of the aggregate (`fedguard.metrics.aggregate`); None without one, or with fewer than two honest
            updates.
        backdoor: success rate of the trigger on the new model; None without a backdoor.
        planted: the trigger as it was in this round, and its target.
        notes: what the attack reports about itself, see `PoisonAttack.notes`.
        behind: the clients behind each row that the rule got: one client, or the clients of a sum.
        too_large: those of `not_finite` with a finite update that held values beyond $2^112$.
        silent: clients that dropped out before their update reached the server.
        chosen: clients that were asked to train.
        clip: clipping bound of an update, if the server clips for privacy.
        masked: result of secure aggregation; None if it is off.
        watched: the whole round, for an observer that watches it; None if it has several aggregates, see
            `fedguard.contracts.Architecture.aggregates`.
        moment: time and cost of the round in simulated time; None without a simulated network.
        effect: $<R, mu> / |mu|^2$ under the attack, under each of its siblings, and under neither ("none"), as probes of the
            rule show it; None for an attack without siblings.
        nodes: the nodes of a training without a server. Then ``model`` is the mean of the honest nodes' models, and
            ``evaluation`` and ``backdoor`` are means over these nodes.
        banned: clients that are excluded from later rounds.
        moments: number of evaluation times that ``model`` accounts for; 1 if rounds are counted.
    """

    round: int
    model: Tensor
    clients: tuple[int, ...]
    malicious: frozenset[int] = frozenset()
    told: int = 0
    not_finite: tuple[int, ...] = ()
    excluded: tuple[int, ...] | None = None
    abandoned: str | None = None
    evaluation: Evaluation | None = None
    aggregate: Mapping[str, Any] | None = None
    backdoor: float | None = None
    planted: tuple[Trigger, int] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    behind: tuple[tuple[int, ...], ...] = ()
    too_large: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    chosen: tuple[int, ...] = ()
    clip: float | None = None
    masked: MaskedRound | None = None
    watched: RoundObservation | None = None
    effect: Mapping[str, float] | None = None
    moment: RoundTiming | None = None
    nodes: NodesReport | None = None
    banned: tuple[int, ...] = ()
    moments: int = 1

    @property
    def received(self) -> int:
        """Number of updates that reached the server."""
        return len(self.clients)

    def without_model(self) -> RoundReport:
        """The same report without its model, to free memory."""
        return replace(self, model=self.model[:0].clone())
