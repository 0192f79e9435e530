"""What happened in a round, as somebody tells it who sees everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fedguard.contracts.tasks import Evaluation, Trigger

if TYPE_CHECKING:
    from fedguard.contracts.wire import Push


@dataclass(frozen=True)
class RoundObservation:
    """One round, as somebody sees it who sees everything. Of this the core makes what the server sees.

    Attributes:
        sent: float32 ``[d]``: the model that the clients got.
        after: float32 ``[d]``: the model after the round.
        clients: the client behind each row of `updates`.
        updates: float32 ``[n, d]``: what left the clients.
        behind: the clients behind each row of `rows`.
        rows: float32 ``[m, d]``: what the server has: each update, or the means behind its sums.
        aggregate: float32 ``[d]``: what the round's aggregate came to, with any noise; None where it was abandoned.
        inputs: by client, float64 ``[d]``: what it put into a session, rounded and noisy, as if it were alone there; none
            without masks.
        models: float32 ``[n, d]``: without a server, the model that each node trained from; None where all share one.
        heard: float32 ``[m, d]``: the messages of the round that came to the nodes that look, in order.
        malicious: those of the clients that are malicious.
        pushes: of each row of `updates`, when it came and from which model; none without simulated time.
        gain: what the aggregate is multiplied by before the server's step.
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
    """What the sessions of secure aggregation in one round came to.

    Attributes:
        clients: number of clients that took part.
        sessions: how many were run; one for all clients, or one for each group.
        aborted: why some of them gave no sum.
        survivors: number of clients whose update is in a sum.
        anonymity: the fewest clients in any sum that the server can form, less those that may collude with it; None
            where it has none.
        contributors: the fewest clients in a sum who surely added their share of any noise: all but those that may collude
            and the malicious ones.
        error: length of (decoded mean - true mean of the same clients' updates) over that of the true one; None where
            there is no sum, or the true mean is zero. Over groups, the root of the sums of squares.
        clipped: the share of the honest updates' coordinates that the encoding cut.
        bytes_up, bytes_down: what all clients sent, and what the server sent.
        left_out: the clients whom the protocol left out of the sums, since it takes them to be malicious.
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
    """One training of one client, from its pull of the model on.

    Attributes:
        began, ended: simulated seconds.
        fate: of its update: ``arrived``; ``late`` for an aggregate that did not wait, which ended it; ``lost`` by the
            network; ``interrupted`` as its device left.
    """

    client: int
    began: float
    ended: float
    fate: Literal["arrived", "late", "lost", "interrupted"]


@dataclass(frozen=True)
class RoundTiming:
    """When a round happened in simulated time, and what was spent up to then.

    Attributes:
        seconds: since the start, at its end.
        computed: seconds of computing, of all devices together.
        joules: of all devices, for computing, sending and receiving.
        bytes_up, bytes_down: sent by devices and to them.
        staleness: of each update that reached the server in this round, the number of times that the model moved since
            the one it was trained from.
        late: the clients whose training the server did not wait for.
        lost: the clients whose update the network lost.
        interrupted: the clients that left before their update had arrived.
        spans: the trainings that ended in this round, in the order in which they did.
        acting: the malicious clients that acted in this round, whether or not their updates arrived.
        releases: how often the server aggregated in this round.
        outvoted: in how many of these more rows were malicious than the rule reckoned with.
        weighed: for each noisy sum that was released, by client, what its updates in it weigh together.
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
    """The nodes of a training without a server after a round, each with a model of its own.

    Attributes:
        messages: vectors that nodes have sent to each other since the start.
        links: (source, destination) of each pair of nodes of which the second ever hears the first.
        outvoted: in how many aggregates of honest nodes in this round more rows were malicious than the rule reckoned with.
        abandoned: how many aggregates of honest nodes changed nothing in this round, since the rule could not run.
        honest: the honest nodes; in rounds that are not evaluated none, and the figures below say nothing.
        accuracy: of the model of each of them.
        mean_model: accuracy of the mean of these models. Nobody has it, and it may be good where no node's own is.
        traffic: bytes over each of the links since the start; empty where messages or links are all alike.
        backlog: simulated seconds that the longest queue of messages still takes to be sent; None where nothing queues.
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
        clients: whose updates reached the server, those that it left out included.
        malicious: those of them that acted for the attack.
        told: the f that the rule was told for this round: how many rows may be malicious.
        not_finite: the clients whose update held NaN, infinity, or values too large to be added up; the server dropped these,
            or they could not be encoded.
        excluded: the clients whose update got no weight; None for rules without weights.
        abandoned: why the round changed nothing; None where it did.
        evaluation: of the new model, in rounds where it was evaluated; so are the figures below.
        kappa: $|R - mu|^2 / (mean_i |x_i - mu|^2)$ over the honest updates $x_i$ with mean $mu$: what this round's
            aggregate R shows of the rule's robustness coefficient.
        cosine: between R and $mu$.
        malicious_length: mean length of the malicious updates over that of the honest ones.
        backdoor: the trigger's success rate on the new model; None without a backdoor.
        planted: the trigger as it was in this round, and its target.
        notes: what the attack says of itself, see `PoisonAttack.notes`.
        behind: the clients behind each row that the rule was given: one, or those of a sum.
        too_large: those of `not_finite` whose update was finite, but held values beyond $2^112$.
        silent: the clients that dropped out before their update reached anybody.
        chosen: the clients that were asked to train.
        clip: the largest length of an update, where the server clips for privacy.
        masked: what secure aggregation came to; None where it is off.
        watched: the round whole, for an observer that watches it; None where it has several aggregates, see
            `fedguard.contracts.Architecture.aggregates`.
        moment: when and for what it happened in simulated time; None without a simulated world.
        effect: $<R, mu> / |mu|^2$ under the attack, under each of its siblings, and under neither ("none"), as probes of
            the rule tell it; None for an attack without siblings.
        nodes: the nodes of a training without a server; then ``model`` is the mean of the honest nodes' models, and
            ``evaluation`` and ``backdoor`` are means over these nodes.
        banned: the clients that have no part in later rounds.
        moments: at how many of the moments that a training is judged at ``model`` stands; 1 where rounds are counted.
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
    kappa: float | None = None
    cosine: float | None = None
    backdoor: float | None = None
    planted: tuple[Trigger, int] | None = None
    notes: Mapping[str, float] = field(default_factory=dict)
    malicious_length: float | None = None
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
        """The same report, with the model let go."""
        return replace(self, model=self.model[:0].clone())
