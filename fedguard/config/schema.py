"""What a suite may say. Every key has a default; an unknown one is an error that names the nearest."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, field_validator, model_validator

from fedguard.config.document import Document, Key, dotted
from fedguard.contracts import Participation, Protocol, Sight, Stay, Training
from fedguard.errors import ConfigError, UnknownName, brief
from fedguard.registry import misread

Spec = str | dict[str, Any]
Count = Annotated[int, Field(strict=True, ge=0)]


def _count_or_fraction(value: Any) -> int | float:
    if type(value) is int and value >= 0:
        return value
    if type(value) is float and 0 <= value <= 1:
        return value
    raise ValueError("expected a number of clients (4) or a fraction of them (0.2)")


CountOrFraction = Annotated[int | float, PlainValidator(_count_or_fraction)]

#: The most seeds of a suite, and positions of its matrix.
MOST_SEEDS, MOST_POSITIONS = 10_000, 50_000

#: What figures of a record a gate may watch.
METRICS = (
    "final_accuracy", "best_accuracy", "worst_class_accuracy", "accuracy_drop", "absence", "harm", "attack_success",
    "psnr", "psnr_gain", "recovered", "label_accuracy", "membership_auc", "membership_tpr", "property_auc", "epsilon",
)  # fmt: skip

#: Those of them that are neither shares nor areas under a curve, which end at 1.
NO_SHARES = ("psnr", "psnr_gain", "epsilon")


#: What a threat model may grant.
Knowledge = Literal["honest_updates", "own_data", "model", "rule"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Section = TypeVar("Section", bound=_Section)


class TaskSection(_Section):
    """What is learned, and how the examples are dealt out.

    Args:
        data: the data set.
        model: the network.
        partition: how the training examples are dealt out to the clients.
        partition_seed: one partition for all seeds; null deals anew with each seed.
        partition_among: whom they are dealt out to: ``all`` clients, so that what a malicious one holds is lost where it sends
            nothing of it; or the ``honest`` ones, and each malicious client holds a copy of an honest one's examples.
    """

    data: Spec = "digits"
    model: Spec = "softmax"
    partition: Spec = "iid"
    partition_seed: Count | None = None
    partition_among: Literal["all", "honest"] = "all"


class StaySection(_Section):
    """Clients that are not there all the time: how many, and in which rounds (from 1) they join and leave."""

    clients: CountOrFraction
    joins: Annotated[int, Field(strict=True, ge=1)] = 1
    leaves: Annotated[int, Field(strict=True, ge=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> StaySection:
        if self.leaves is not None and self.leaves <= self.joins:
            raise ValueError(f"leaves: expected a round after joins = {self.joins}; got {self.leaves}")
        return self


class ClientsSection(_Section):
    """Who takes part, and how many of them are malicious: a count, or a fraction in [0, 1] with a decimal point.

    Args:
        total: number of clients in the federation.
        per_round: how many take part in a round.
        sampling: how these are chosen: exactly so many (``fixed``), each by the toss of a coin (``poisson``), or in public
            turns (``cyclic``).
        malicious: how many are malicious; they collude.
        schedule: clients that join or leave between rounds; those of the first entry have the lowest numbers.
        assumed_f: the f that the rules are told: that of the truth by default, a count or fraction of another track, or
            ``unknown``: then each rule is told the largest minority that it can run with.
    """

    total: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 20
    per_round: CountOrFraction = 1.0
    sampling: Literal["fixed", "poisson", "cyclic"] = "fixed"
    schedule: tuple[StaySection, ...] = ()
    malicious: CountOrFraction = 0
    assumed_f: Literal["unknown"] | CountOrFraction | None = None

    @property
    def participation(self) -> Participation:
        stays = tuple(
            Stay(clients=self.count(one.clients), joins=one.joins, leaves=one.leaves) for one in self.schedule
        )
        return Participation(total=self.total, per_round=self.per_round, sampling=self.sampling, schedule=stays)

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


class ThreatSection(_Section):
    """What the colluders see, and when they act (rounds from 1).

    Args:
        knowledge: what they are granted, as far as the protocol shows it.
        first_round: the round in which they start to act.
        last_round: the last in which they act; null for the end.
        every: they act in every k-th round from the first.
    """

    knowledge: tuple[Knowledge, ...] = get_args(Knowledge)
    first_round: Annotated[int, Field(strict=True, ge=1)] = 1
    last_round: Annotated[int, Field(strict=True, ge=1)] | None = None
    every: Annotated[int, Field(strict=True, ge=1)] = 1

    @property
    def grants(self) -> Sight:
        return Sight.parse(self.knowledge)


class ObserverSection(_Section):
    """What a server is granted that infers the clients' data, and whom it attacks.

    Args:
        server: a curious one keeps to the protocol, a malicious one may send another model.
        round: the one that it watches (from 1), if its attack watches one.
        victims: how many clients it attacks, each by itself.
        labels: whether it is told the labels of the examples behind what it attacks.
        candidates: of a membership inference, the most members, and the most others, that it is asked about.
    """

    server: Literal["curious", "malicious"] = "curious"
    round: Annotated[int, Field(strict=True, ge=1)] = 1
    victims: Annotated[int, Field(strict=True, ge=1)] = 4
    labels: bool = False
    candidates: Annotated[int, Field(strict=True, ge=2)] = 1000


class ServerSection(_Section):
    """What the server has of its own.

    Args:
        root_data: clean examples, for rules such as fltrust; no client has them, and none is for testing.
    """

    root_data: Count = 0


class EvaluationSection(_Section):
    """How often the model is evaluated; the last round always is.

    Args:
        every: rounds between evaluations; the final accuracy is the mean of the last five.
    """

    every: Annotated[int, Field(strict=True, ge=1)] = 1


class GateMetric(_Section):
    """How much worse a figure may become before a gate fails, in its own unit: 0.02 of a share is 2 points.

    Args:
        margin: how much worse; the figure's own, unless it is said.
        floor: the least that a cell's mean over seeds may be; it does not move with the baseline.
        ceiling: the most that it may be.
    """

    margin: Annotated[float, Field(ge=0)] | None = None
    floor: float | None = None
    ceiling: float | None = None


class GateSection(_Section):
    """What a gate on this suite watches; it changes nothing of what runs.

    Args:
        alpha: level of the test on fresh seeds.
        confirm: how many fresh seeds confirm a drop.
        audit: whether epsilons are audited.
        single_seed: what becomes of a seed that is ruined while the others, and fresh ones, are not: ``report`` says so,
            ``fail`` calls it a regression.
        metrics: which figures, and how much worse they may become; by default those that the run has.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    confirm: Annotated[int, Field(strict=True, ge=3)] = 8
    audit: bool = True
    single_seed: Literal["report", "fail"] = "report"
    metrics: dict[Literal[METRICS], GateMetric] = {}  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _shares(self) -> GateSection:
        for figure, said in self.metrics.items():
            for key, value in (("margin", said.margin), ("floor", said.floor), ("ceiling", said.ceiling)):
                if figure not in NO_SHARES and value is not None and value > 1:
                    raise ValueError(
                        f"metrics.{figure}.{key}: expected a share, such as 0.03 for 3 points; got {value:g}"
                    )
        return self


class TriedSection(_Section):
    """One setting that was tried in tuning, and its score; or why it has none.

    Args:
        setting: the defense with its parameters.
        score: its worst mean final accuracy over the attacks, a share in [0, 1].
        why: it has no score.
    """

    setting: str
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    why: str = ""


class TunedSection(_Section):
    """What was tried for one defense, the configured setting first, and what was chosen.

    Args:
        chosen: the setting with the best score.
        candidates: all that were tried.
    """

    chosen: str
    candidates: Annotated[tuple[TriedSection, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> TunedSection:
        if self.chosen not in [candidate.setting for candidate in self.candidates]:
            raise ValueError(f"chosen: expected the setting of one of the candidates; got {self.chosen!r}")
        return self


class TuningSection(_Section):
    """How the defenses of a suite were tuned (`fedguard tune` writes it): a record that changes nothing of what runs.

    Args:
        run: the name of the run that the tuning made.
        attacks: those tuned on, which the suite then leaves out.
        seeds: those tuned on, none of the suite's own.
        budget: settings tried for each defense at most.
        judged_on: which examples the settings were compared on.
        trained_on: whose records the trainings saw. Those of clients have a cost that no epsilon of the suite counts.
        defenses: what was tried for each.
    """

    run: str = ""
    attacks: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    budget: Annotated[int, Field(strict=True, ge=1)]
    judged_on: Literal["test"] = "test"
    trained_on: Literal["clients", "public"] = "clients"
    defenses: tuple[TunedSection, ...] = ()

    @model_validator(mode="after")
    def _within_budget(self) -> TuningSection:
        for defense in self.defenses:
            if len(defense.candidates) > self.budget:
                raise ValueError(
                    f"defenses: expected at most budget = {self.budget} candidates for {defense.candidates[0].setting}; "
                    f"got {len(defense.candidates)}"
                )
        return self


class CellConfig(_Section):
    """The settings of one cell.

    Args:
        architecture: how the parties train together.
        attack: on the training or on the clients' privacy; ``none`` for no attack.
        defense: a pipeline, ``client transforms >> mixings >> rule``.
    """

    task: TaskSection = TaskSection()
    clients: ClientsSection = ClientsSection()
    training: Training = Training()
    protocol: Protocol = Protocol()
    threat: ThreatSection = ThreatSection()
    observer: ObserverSection = ObserverSection()
    server: ServerSection = ServerSection()
    evaluation: EvaluationSection = EvaluationSection()
    architecture: str = "server"
    attack: Spec = "none"
    defense: Spec | list[Spec] = "mean"

    @model_validator(mode="after")
    def _consistent(self) -> CellConfig:
        training = self.training
        for fault in training.faults():
            raise ValueError(f"training: {fault}")
        latest = max((stay.joins for stay in self.clients.schedule), default=1)
        if latest > training.rounds:
            raise ValueError(
                f"clients.schedule: expected joins of at most training.rounds = {training.rounds}; got {latest}"
            )
        if self.threat.last_round is not None and self.threat.last_round < self.threat.first_round:
            raise ValueError("threat.last_round: expected no less than threat.first_round")
        if self.observer.round > training.rounds:
            raise ValueError(f"observer.round: expected at most training.rounds = {training.rounds}")
        return self


class Suite(CellConfig):
    """A whole suite file: the settings of a cell, and what is swept over them.

    Args:
        schema: version of this format.
        name: of the run folder.
        seeds: their number, counted from 0, or a list of them.
        matrix: lists of values by dotted key, such as ``clients.malicious: [0, 2, 4]``; their product is the suite.
        plugins: modules with algorithms of your own, beside the suite file or installed.
        gate: what a gate on this suite watches.
        tuning: how its defenses were tuned.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    name: str = "suite"
    seeds: tuple[Count, ...] = (0, 1, 2)
    matrix: dict[str, list[Any]] = {}
    plugins: tuple[str, ...] = ()
    gate: GateSection = GateSection()
    tuning: TuningSection | None = None

    @model_validator(mode="after")
    def _tuned_on_other_seeds(self) -> Suite:
        both = sorted(set(self.seeds) & set(self.tuning.seeds if self.tuning else ()))
        if both:
            raise ValueError(f"seeds: expected none of the seeds that the defenses were tuned on; got {both}")
        return self

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not is_run_name(value):
            raise ValueError(f"expected {A_RUN_NAME}")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= MOST_SEEDS:
                raise ValueError(f"expected a number of seeds from 1 to {MOST_SEEDS:,}, or a list of seeds")
            return tuple(range(value))
        if isinstance(value, list) and (not value or len(set(map(str, value))) < len(value)):
            raise ValueError("expected a number of seeds, or a list of different seeds")
        return value

    @field_validator("matrix")
    @classmethod
    def _matrix(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, choices in value.items():
            if not choices:
                raise ValueError(f"{key}: expected a list with at least one choice")
        positions = math.prod(map(len, value.values()))
        if positions > MOST_POSITIONS:
            raise ValueError(f"expected at most {MOST_POSITIONS:,} combinations; got {positions:,}")
        return value


#: What a run may be called, in words.
A_RUN_NAME = "a folder name of letters, digits, '.', '_' and '-'"


def is_run_name(value: str) -> bool:
    """Whether a run may be called so: a folder of that name lies in the store, whatever it is."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value))


def read_suite(document: Document) -> Suite:
    """Validate a document.

    Raises:
        ConfigError: one line with file, line, key, what was expected and what came.
    """
    return validated(Suite, document.data, document)


def validated(model: type[Section], data: Mapping[str, Any], document: Document, at: Key = ()) -> Section:
    """``data`` as a ``model``; messages name ``at`` as the place, if it is given.

    Raises:
        ConfigError: one line with file, line, key, what was expected and what came.
    """
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        raise _explained(model, error, data, document, at) from None
    for key, value in misread(data, made):
        raise ConfigError(f"{_place(document, at, key)}: expected a number; got {brief(value)}.")
    return made


def _explained(
    model: type[BaseModel], error: ValidationError, data: Mapping[str, Any], document: Document, at: Key
) -> ConfigError:
    """The first of pydantic's complaints, in our words."""
    first = min(error.errors(), key=lambda one: one["type"] not in _UNKNOWN)
    where = _place(document, at, _without_branches(first["loc"], data))
    if first["type"] in _UNKNOWN:
        return UnknownName("key", str(first["loc"][-1]), _keys_at(model, first["loc"][:-1]), where)
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if first["type"] == "value_error":
        came = "" if "; got" in said or isinstance(first["input"], dict) else f"; got {brief(first['input'])}"
        return ConfigError(f"{where}: {said}{came}.")
    return ConfigError(f"{where}: expected {said}; got {brief(first['input'])}.")


#: pydantic's names for a key that does not exist, in a model and in a dataclass.
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _place(document: Document, at: Key, key: Key) -> str:
    """Where a complaint about ``key`` stands; under a swept value it is that value's place, and the key beside it."""
    where = document.where(at or key)
    return f"{where} ({dotted(key)})" if at and key and key[-1] != at[-1] else where


def _without_branches(loc: Key, data: Any) -> Key:
    """pydantic's location without its names for the branches of unions: what leads somewhere in the data, or lacks there."""
    key: list[str | int] = []
    for part in loc:
        listed = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if listed or (isinstance(data, Mapping) and part in data):
            data = data[part]
            key.append(part)
        elif isinstance(data, Mapping) and part == loc[-1] and not _is_branch(part):
            key.append(part)
    return tuple(key)


def _is_branch(part: str | int) -> bool:
    """Whether a part of pydantic's location may name a branch of a union instead of a key."""
    return isinstance(part, str) and (not part.isidentifier() or part in ("str", "int", "float") or part[0].isupper())


def _keys_at(model: Any, key: Key) -> Iterable[str]:
    """The keys that may stand in the section ``key`` of a model, where pydantic may have put in the branches of unions."""
    sections = [model]
    for part in key:
        if isinstance(part, int):
            continue  # the items of a list are alike
        if _is_branch(part):
            sections = [section for section in sections if section.__name__ == part] or sections
            continue
        hints = [get_type_hints(section).get(str(part)) for section in sections]
        kinds = [kind for hint in hints for kind in (hint, *get_args(hint))]
        sections = [kind for kind in kinds if hasattr(kind, "model_fields") or dataclasses.is_dataclass(kind)]
    return [name for section in sections for name in _keys(section)]


def _keys(section: Any) -> list[str]:
    if dataclasses.is_dataclass(section):
        return [field.name for field in dataclasses.fields(section)]
    return [field.alias or name for name, field in section.model_fields.items()]
