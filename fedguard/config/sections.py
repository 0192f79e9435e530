"""The sections of a cell's settings: task, clients, training, protocol, threat, observer, server, evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from fedguard.contracts import (
    Availability,
    Dropout,
    FederatedAlgorithm,
    FixedPoint,
    Links,
    Masking,
    Network,
    Noise,
    Participation,
    Protocol,
    Seating,
    ServerOptimizer,
    Sight,
    Speeds,
    Stay,
    Training,
)
from fedguard.rng import MOST_SEED

Spec = str | dict[str, Any]
Count = Annotated[int, Field(strict=True, ge=0, le=MOST_SEED)]
#: A number of rounds, epochs or steps. A larger one is a typing error, and its training would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]


def _count_or_fraction(value: Any) -> int | float:
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value <= 1:
        return value
    raise ValueError("expected a number of clients (4) or a fraction of them (0.2)")


CountOrFraction = Annotated[int | float, PlainValidator(_count_or_fraction)]

#: What a threat model may grant
Knowledge = Literal["honest_updates", "own_data", "model", "rule"]


class Section(BaseModel):
    """A part of a suite; an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants")


class TaskSection(Section):
    """What is learned, and how the examples are divided among the clients.

    Args:
        data: the data set.
        model: the model that is trained.
        partition: how the training examples are divided among the clients.
        partition_seed: seed of the partition, the same for all trials; null draws a new partition for each seed.
        partition_among: clients among which the examples are divided. With ``all``, malicious clients get shares too, which are
            lost where they send nothing trained on them. With ``honest``, each malicious client holds a copy of an honest
            client's examples.
        shared: fraction of the training examples that is public. No client gets them as its share; each client, malicious or
            not, holds a copy of all of them beside its own examples (Zhao et al., 2018).
    """

    data: Spec = "digits"
    model: Spec = "softmax"
    partition: Spec = "iid"
    partition_seed: Count | None = None
    partition_among: Literal["all", "honest"] = "all"
    shared: Annotated[float, Field(ge=0, lt=1)] = 0.0


class StaySection(Section):
    """Clients that take part in some rounds only: their number, and the rounds (from 1) in which they join and leave."""

    clients: CountOrFraction
    joins: Annotated[int, Field(strict=True, ge=1)] = 1
    leaves: Annotated[int, Field(strict=True, ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> StaySection:
        if self.leaves is not None and self.leaves <= self.joins:
            raise ValueError(f"leaves: expected a round after joins = {self.joins}; got {self.leaves}")
        return self


class ClientsSection(Section):
    """The clients of the federation. A number of clients is a count, or a fraction in [0, 1] with a decimal point.

    Args:
        total: number of clients in the federation.
        per_round: number of clients selected in a round.
        sampling: how clients are selected: exactly ``per_round`` of them at random (``fixed``), each independently with the
            same probability (``poisson``), or in groups that take turns in a public order (``cyclic``).
        malicious: number of malicious clients, which collude.
        schedule: clients that join or leave between rounds. The first entry describes the clients with the lowest numbers.
        assumed_f: number of malicious clients that the aggregation rule assumes. The default is the true number. ``unknown``
            assumes the largest minority with which the rule can run.
        most_trainings: limit of local trainings per client, for architectures in which clients proceed on their own in
            simulated time. A client that has started this number takes no further part, which bounds its epsilon before the
            run.
    """

    total: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 20
    per_round: CountOrFraction = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"
    schedule: tuple[StaySection, ...] = ()
    malicious: CountOrFraction = 0
    assumed_f: Literal["unknown"] | CountOrFraction | None = None
    most_trainings: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None

    @property
    def participation(self) -> Participation:
        stays = tuple(
            Stay(clients=self.count(one.clients), joins=one.joins, leaves=one.leaves) for one in self.schedule
        )
        return Participation(
            total=self.total,
            per_round=self.per_round,
            sampling=self.sampling,
            schedule=stays,
            most_trainings=self.most_trainings,
        )

    def count(self, value: int | float) -> int:
        """Convert a count or a fraction of the clients to a count."""
        return value if isinstance(value, int) else round(value * self.total)

    @model_validator(mode="after")
    def _consistent(self) -> ClientsSection:
        if not 0 < self.per_round <= self.total:
            raise ValueError(
                f"per_round: expected from 1 to clients.total = {self.total} clients, or a fraction; got {self.per_round}"
            )
        if self.sampling == "cyclic" and self.total % self.participation.expected:
            raise ValueError(
                "per_round: clients that take turns are dealt into equal groups, so expected a divisor of clients.total = "
                f"{self.total}; got {self.participation.expected}"
            )
        scheduled = sum(stay.clients for stay in self.participation.schedule)
        if scheduled > self.total:
            raise ValueError(f"schedule: expected at most clients.total = {self.total} clients; got {scheduled}")
        if self.schedule and self.sampling == "cyclic":
            raise ValueError("schedule: clients that take turns are there all the time; got sampling: cyclic")
        for key, value in (("malicious", self.malicious), ("assumed_f", self.assumed_f)):
            if value is not None and value != "unknown" and self.count(value) >= self.total:
                raise ValueError(f"{key}: expected fewer than clients.total = {self.total}; got {self.count(value)}")
        return self


class ProtocolSection(Section):
    """The protocol between the clients and the server.

    Args:
        secure_aggregation: the secure aggregation mode, which decides what the server sees. Its parameters are given under its
            name, as in ``{group_testing: {tests: 8}}``; or, if one of them has the name of the mode, beside that one, as in
            ``{groups: 6, redraw: false}``.
        colluding: fraction of a round's clients that may collude with the server without breaking the masks.
        dropout: which clients drop out during a session.
        encoding: fixed-point encoding of the updates under masks.
        norm_bound: largest norm of an update, enforced on malicious clients too, as if each client proved it; null for no
            proofs.
        privacy: the noise of differential privacy.
    """

    secure_aggregation: Spec = "off"
    colluding: Annotated[float, Field(ge=0, lt=1)] = 0.1
    dropout: Dropout = Dropout()
    encoding: FixedPoint = FixedPoint()
    norm_bound: Annotated[float, Field(gt=0)] | None = None
    privacy: Spec = "none"

    def protocol(self, mode: Masking, noise: Noise) -> Protocol:
        """Build the protocol from the mode and the noise that ``secure_aggregation`` and ``privacy`` name."""
        return Protocol(**{**dict(self), "secure_aggregation": mode, "privacy": noise})

    def under(self, protocol: Protocol) -> ProtocolSection:
        """Return this section with the secure aggregation mode and the norm bound of ``protocol``."""
        mode, bound = protocol.secure_aggregation.setting, protocol.norm_bound
        return self.model_copy(update={"secure_aggregation": mode, "norm_bound": bound})


class TrainingSection(Section):
    """How the federation trains. Parameters of a single algorithm are given beside these keys.

    Args:
        algorithm: the federated algorithm: how clients train, and what the server does with their updates.
        rounds: number of rounds.
        local_epochs: passes of each client over its examples in a round; not for FedSGD, which takes a single step.
        batch_size: examples per local step; null takes all examples of the client.
        lr: learning rate of the local SGD; for FedSGD, a factor of the server's step.
        momentum: momentum of the local SGD, reset to 0 in each round; not for FedSGD.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``. Each client keeps m across rounds, and sends m instead of u.
        server_lr: learning rate of the server.
        server_momentum: mu of ``v <- mu v + aggregate``. The server adds v to the model instead of the aggregate.
        local_steps: local steps of each client in a round, instead of epochs, each on a newly drawn batch; not for FedSGD.
        server_optimizer: optimizer that moves the model, instead of server momentum.
    """

    model_config = ConfigDict(extra="allow")

    algorithm: Spec = "fedavg"
    rounds: Many = 30
    local_epochs: Many = 1
    batch_size: Annotated[int, Field(ge=1)] | None = 16
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    worker_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    server_lr: Annotated[float, Field(gt=0)] = 1.0
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    local_steps: Many | None = None
    server_optimizer: ServerOptimizer | None = None

    @property
    def own(self) -> dict[str, Any]:
        """The parameters beside the keys that every algorithm has."""
        return self.model_extra or {}

    def training(self, algorithm: FederatedAlgorithm) -> Training:
        """Build the training with the algorithm that ``algorithm`` names."""
        return Training(**{**{key: getattr(self, key) for key in type(self).model_fields}, "algorithm": algorithm})

    @model_validator(mode="after")
    def _consistent(self) -> TrainingSection:
        for one, other in (("local_steps", "local_epochs"), ("server_optimizer", "server_momentum")):
            if getattr(self, one) and getattr(self, other) != type(self).model_fields[other].default:
                raise ValueError(f"{one} stands instead of {other}; expected one of them; got both")
        return self


class ThreatSection(Section):
    """What the malicious clients know, and when they act (rounds from 1).

    Args:
        knowledge: what the threat model grants them. They see it only as far as the protocol shows it.
        first_round: first round in which they act.
        last_round: last round in which they act; null for the last round of the training.
        every: they act in every k-th round from the first.
        stays: whether they never drop out: network.link.loss, network.there and protocol.dropout then spare them, but not
            honest clients.
    """

    knowledge: tuple[Knowledge, ...] = get_args(Knowledge)
    first_round: Annotated[int, Field(strict=True, ge=1)] = 1
    last_round: Annotated[int, Field(strict=True, ge=1)] | None = None
    every: Annotated[int, Field(strict=True, ge=1)] = 1
    stays: bool = False

    @property
    def grants(self) -> Sight:
        return Sight.parse(self.knowledge)


class ObserverSection(Section):
    """The adversary that infers the clients' data: the server, or nodes of a training without a server.

    Args:
        server: ``curious`` follows the protocol; ``malicious`` may also send a different model.
        round: the round (from 1) that an attack on a single round watches.
        victims: number of clients that are attacked, each on its own.
        labels: whether the attack knows the labels of the examples that it attacks.
        candidates: limit of a membership inference attack: the most members, and the most nonmembers, that it classifies.
        seat: who observes: the ``server``, or ``nodes`` that pool the messages they receive. ``nodes`` are drawn at random,
            ``side_by_side`` are a drawn node and its nearest ones, and ``around`` are the nodes nearest to a drawn one.
        nodes: number of observing nodes.
        listens: number of rounds after the watched one in which nodes continue to receive messages.
    """

    server: Literal["curious", "malicious"] = "curious"
    round: Annotated[int, Field(strict=True, ge=1)] = 1
    victims: Annotated[int, Field(strict=True, ge=1)] = 4
    labels: bool = False
    candidates: Annotated[int, Field(strict=True, ge=2)] = 1000
    seat: Seating = "server"
    nodes: Annotated[int, Field(strict=True, ge=1)] = 1
    listens: Count = 1

    def spec(self) -> dict[str, Any]:
        """Part of a cell's identity. The keys of observing nodes are left out if the server observes."""
        return self.model_dump(exclude={"seat", "nodes", "listens"} if self.seat == "server" else None)


class NetworkSection(Section):
    """Durations in simulated seconds, and the availability of devices.

    Args:
        compute: how long devices compute.
        link: how long messages take.
        there: when devices are online, such as ``on_off(on=600, off=300)``; null for always. A device that goes offline before
            its update has arrived loses it.
        malicious_pace: factor of the computation time of malicious clients: 0.1 is a tenth. A client that answers first is
            never too late, and sends more often.
    """

    compute: Speeds = Speeds()
    link: Links = Links()
    there: Spec | None = None
    malicious_pace: Annotated[float, Field(ge=0, le=1e9)] = 1.0

    def network(self, there: Availability) -> Network:
        """Build the network with the availability that ``there`` names."""
        return Network(**{**dict(self), "there": there})


class ServerSection(Section):
    """What only the server has.

    Args:
        root_data: number of clean examples for rules such as fltrust. They belong to no client and are not used for testing.
    """

    root_data: Count = 0


class EvaluationSection(Section):
    """When the model is evaluated. The last round always is.

    Args:
        every: rounds between evaluations. The final accuracy is the mean of the last five.
        seconds: simulated seconds between evaluations, instead of rounds.
        until: simulated seconds after which the training ends; ``training.rounds`` is then an upper bound.
        evasion: an attack at test time on the final model of each cell, such as ``pgd``.
    """

    every: Annotated[int, Field(strict=True, ge=1)] = 1
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    until: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    evasion: Spec | None = None

    @property
    def in_time(self) -> bool:
        """Whether simulated time decides when the model is evaluated."""
        return self.seconds is not None or self.until is not None

    @property
    def spec(self) -> dict[str, Any]:
        """Part of a cell's identity: when the model is evaluated."""
        return {"every": self.every} | self.model_dump(include={"seconds", "until"}, exclude_none=True)

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSection:
        if self.seconds is not None and self.every != 1:
            raise ValueError("seconds stands instead of every; expected one of them; got both")
        return self
