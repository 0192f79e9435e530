"""The sections of a cell's settings: task, clients, training, protocol, threat, observer, server, evaluation."""

from __future__ import annotations

from pathlib import Path
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
#: A number of rounds, passes or steps: what is more is a slip of the pen, and would never end.
Many = Annotated[int, Field(ge=1, le=1_000_000)]


def _count_or_fraction(value: Any) -> int | float:
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value <= 1:
        return value
    raise ValueError("expected a number of clients (4) or a fraction of them (0.2)")


CountOrFraction = Annotated[int | float, PlainValidator(_count_or_fraction)]

#: What a threat model may grant.
Knowledge = Literal["honest_updates", "own_data", "model", "rule"]


class Section(BaseModel):
    """A part of a suite: an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants")


class TaskSection(Section):
    """What is learned, and how the examples are dealt out.

    Args:
        data: the data set.
        model: the network.
        partition: how the training examples are dealt out to the clients.
        partition_seed: one partition for all seeds; null deals anew with each seed.
        partition_among: whom they are dealt out to: ``all`` clients, so that what a malicious one holds is lost where it
            sends nothing of it; or the ``honest`` ones, and each malicious client holds a copy of an honest one's examples.
        shared: the share of the training examples that is public: dealt to nobody, and each client, malicious ones too,
            holds a copy of all of it beside its own (Zhao et al., 2018).
    """

    data: Spec = "digits"
    model: Spec = "softmax"
    partition: Spec = "iid"
    partition_seed: Count | None = None
    partition_among: Literal["all", "honest"] = "all"
    shared: Annotated[float, Field(ge=0, lt=1)] = 0.0


class StaySection(Section):
    """Clients that are not there all the time: how many, and in which rounds (from 1) they join and leave."""

    clients: CountOrFraction
    joins: Annotated[int, Field(strict=True, ge=1)] = 1
    leaves: Annotated[int, Field(strict=True, ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> StaySection:
        if self.leaves is not None and self.leaves <= self.joins:
            raise ValueError(f"leaves: expected a round after joins = {self.joins}; got {self.leaves}")
        return self


class ClientsSection(Section):
    """Who takes part, and how many of them are malicious: a count, or a fraction in [0, 1] with a decimal point.

    Args:
        total: number of clients in the federation.
        per_round: how many take part in a round.
        sampling: how these are chosen: exactly so many (``fixed``), each by the toss of a coin (``poisson``), or in public
            turns (``cyclic``).
        malicious: how many are malicious; they act as one.
        schedule: clients that join or leave between rounds; those of the first entry have the lowest numbers.
        assumed_f: the f that the rules are told: that of the truth by default, a count or fraction of another track, or
            ``unknown``: then each rule is told the largest minority that it can run with.
        most_trainings: of one client, where clients go on by themselves in simulated time: one that has begun so many takes no
            more part, so that its epsilon is bounded before the run.
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
        """A count of clients from a count or a fraction."""
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
    """What stands between the clients and the server.

    Args:
        secure_aggregation: the mode: what the server sees. Its parameters stand under its name, as in
            ``{group_testing: {tests: 8}}``, or beside the one that is called like it, as in ``{groups: 6, redraw: false}``.
        colluding: the share of a round's clients that may collude with the server, which the masks withstand.
        dropout: who falls silent.
        encoding: of the updates, under masks.
        norm_bound: the largest length of an update, malicious ones included, as if each client proved it; None for no proofs.
        privacy: the noise that is added.
    """

    secure_aggregation: Spec = "off"
    colluding: Annotated[float, Field(ge=0, lt=1)] = 0.1
    dropout: Dropout = Dropout()
    encoding: FixedPoint = FixedPoint()
    norm_bound: Annotated[float, Field(gt=0)] | None = None
    privacy: Spec = "none"

    def protocol(self, mode: Masking, noise: Noise) -> Protocol:
        """The protocol with the mode and the noise that ``secure_aggregation`` and ``privacy`` name."""
        return Protocol(**{**dict(self), "secure_aggregation": mode, "privacy": noise})

    def under(self, protocol: Protocol) -> ProtocolSection:
        """The same as it asks for another mode, and another bound."""
        mode, bound = protocol.secure_aggregation.setting, protocol.norm_bound
        return self.model_copy(update={"secure_aggregation": mode, "norm_bound": bound})


class TrainingSection(Section):
    """How the federation trains. The parameters that its algorithm alone has stand beside these keys.

    Args:
        algorithm: how clients train and what the server does with it.
        rounds: number of rounds.
        local_epochs: passes of each client over its examples in a round; FedSGD makes none.
        batch_size: examples per local step; null takes all of a client's.
        lr: step of the local SGD; of FedSGD, a factor of the server's step.
        momentum: of the local SGD, not for FedSGD; starts from 0 in each round.
        worker_momentum: beta of ``m <- beta m + (1 - beta) u``, kept by each client across rounds; it sends m instead of u.
        server_lr: the server's step.
        server_momentum: mu of ``v <- mu v + aggregate``; the server adds v instead of the aggregate.
        local_steps: steps of each client in a round, instead of epochs, each on a batch drawn afresh; not for FedSGD.
        server_optimizer: moves the model instead of server momentum.
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
        """What stands beside the keys that every algorithm has."""
        return self.model_extra or {}

    def training(self, algorithm: FederatedAlgorithm) -> Training:
        """The training by the algorithm that ``algorithm`` names."""
        return Training(**{**{key: getattr(self, key) for key in type(self).model_fields}, "algorithm": algorithm})

    @model_validator(mode="after")
    def _consistent(self) -> TrainingSection:
        for one, other in (("local_steps", "local_epochs"), ("server_optimizer", "server_momentum")):
            if getattr(self, one) and getattr(self, other) != type(self).model_fields[other].default:
                raise ValueError(f"{one} stands instead of {other}; expected one of them; got both")
        return self


class ThreatSection(Section):
    """What the malicious clients see, and when they act (rounds from 1).

    Args:
        knowledge: what they are granted, as far as the protocol shows it.
        first_round: the round in which they start to act.
        last_round: the last in which they act; null for the end.
        every: they act in every k-th round from the first.
        stays: whether their devices never drop out: neither network.link.loss nor network.there nor protocol.dropout hits
            them, as it does all others.
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
    """Who infers the clients' data: a server, or nodes of a training without one; what it is granted, and whom it attacks.

    Args:
        server: a curious one keeps to the protocol, a malicious one may send another model.
        round: the one that it watches (from 1), if its attack watches one.
        victims: how many clients it attacks, each by itself.
        labels: whether it is told the labels of the examples behind what it attacks.
        candidates: of a membership inference, the most members, and the most others, that it is asked about.
        seat: who looks: the ``server``, or ``nodes`` that pool what they hear; these are drawn, or stand ``side_by_side``, or
            ``around`` a drawn node.
        nodes: how many nodes.
        listens: for how many rounds after the watched one nodes go on listening.
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
        """As it stands in a cell's identity: what is asked of nodes is left out where a server looks."""
        return self.model_dump(exclude={"seat", "nodes", "listens"} if self.seat == "server" else None)


class NetworkSection(Section):
    """How long everything takes in simulated seconds, and which devices are there.

    Args:
        compute: how long devices compute.
        link: how long messages take.
        there: when devices are there, such as ``on_off(on=600, off=300)``; null for always. Who leaves before its update has
            arrived loses it.
        malicious_pace: what malicious clients make of their time to compute: 0.1 is a tenth of it. One who answers first
            is never late, and sends more often.
    """

    compute: Speeds = Speeds()
    link: Links = Links()
    there: Spec | None = None
    malicious_pace: Annotated[float, Field(ge=0, le=1e9)] = 1.0

    def network(self, there: Availability) -> Network:
        """The network with the law that ``there`` names."""
        return Network(**{**dict(self), "there": there})


class AppTrainingSection(Section):
    """What an app's nodes train and on what, as its team says: what an attack on their privacy needs, and is scored by.

    Where a number stands, the key of the app's run configuration that holds it will do.

    Args:
        model: ``module:function`` of the app's folder, which makes its `torch.nn.Module`; a class will do.
        data: ``module:function`` that takes a node's partition and the number of partitions, and returns ``(x, y)`` on which it
            trains and ``(x, y)`` on which nobody does.
        lr: step of the local SGD on the mean cross-entropy.
        batch_size: examples per local step; null takes all of a node's.
        local_epochs: passes of a node over its examples in a round.
        local_steps: steps of a node in a round, instead of epochs.
    """

    model: Annotated[str, Field(min_length=1)]
    data: Annotated[str, Field(min_length=1)]
    lr: Annotated[float, Field(gt=0)] | str
    batch_size: Annotated[int, Field(ge=1)] | str | None = None
    local_epochs: Many | str = 1
    local_steps: Many | str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> AppTrainingSection:
        if self.local_steps is not None and self.local_epochs != 1:
            raise ValueError("local_steps stands instead of local_epochs; expected one of them; got both")
        return self


class AppSection(Section):
    """An app of other people that is put to attacks and defenses as it is: a folder with a Flower app.

    Args:
        folder: of its pyproject.toml, from where the command is started.
        set: over its run configuration, by its flat keys.
        metric: how it calls its accuracy; by default what has ``acc`` in its name.
        engine: where it runs: in one process (``inline``), in Flower's ``simulation`` on Ray, or as a ``deployment`` of real
            processes on this machine.
        training: what its nodes train and on what, for attacks on their privacy alone.
    """

    folder: Annotated[str, Field(min_length=1)]
    set: dict[str, bool | int | float | str] = Field(default_factory=dict)
    metric: str | None = None
    engine: Literal["inline", "simulation", "deployment"] = "inline"
    training: AppTrainingSection | None = None

    @property
    def name(self) -> str:
        """Of its folder."""
        return Path(self.folder).resolve().name

    def spec(self, *, observed: bool) -> dict[str, Any]:
        """As it stands in a cell's identity: the usual engine is left out, and the training where nobody looks for its data."""
        usual = {"engine"} if self.engine == "inline" else set()
        return self.model_dump(mode="json", exclude=usual if observed else {*usual, "training"})


class ServerSection(Section):
    """What the server has of its own.

    Args:
        root_data: clean examples, for rules such as fltrust; no client has them, and none is for testing.
    """

    root_data: Count = 0


class EvaluationSection(Section):
    """How often the model is evaluated; the last round always is.

    Args:
        every: rounds between evaluations; the final accuracy is the mean of the last five.
        seconds: simulated seconds between evaluations, instead of rounds.
        until: simulated seconds after which the training ends; ``training.rounds`` is then the most that there are.
        evasion: an attack at test time that each cell's final model is put to, such as ``pgd``.
    """

    every: Annotated[int, Field(strict=True, ge=1)] = 1
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    until: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    evasion: Spec | None = None

    @property
    def in_time(self) -> bool:
        """Whether simulated time decides what is evaluated."""
        return self.seconds is not None or self.until is not None

    @property
    def spec(self) -> dict[str, Any]:
        """When it evaluates, as it stands in a cell's identity."""
        return {"every": self.every} | self.model_dump(include={"seconds", "until"}, exclude_none=True)

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSection:
        if self.seconds is not None and self.every != 1:
            raise ValueError("seconds stands instead of every; expected one of them; got both")
        return self
