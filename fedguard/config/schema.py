"""What a suite may say. Every key has a default; an unknown one is an error that names the nearest."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from fedguard.config.apps import AppTarget, without_description
from fedguard.config.composed import ComposedTarget
from fedguard.config.document import Document
from fedguard.config.sections import (
    AppSection,
    ClientsSection,
    Count,
    EvaluationSection,
    NetworkSection,
    ObserverSection,
    ProtocolSection,
    Section,
    ServerSection,
    Spec,
    TaskSection,
    ThreatSection,
    TrainingSection,
)
from fedguard.config.targets import Target
from fedguard.config.validation import validate_data
from fedguard.metrics.figures import FIGURES, TargetMetric

#: The most seeds of a suite, and positions of its matrix.
MOST_SEEDS, MOST_POSITIONS = 10_000, 50_000

#: What figures of a record a gate may watch.
METRICS = tuple(name for name, figure in FIGURES.items() if figure.margin is not None)


def watchable(figure: str) -> str:
    """The name of a figure that a gate may watch.

    Raises:
        ValueError: it is none.
    """
    if figure not in METRICS and not (figure in FIGURES and isinstance(FIGURES[figure], TargetMetric)):
        names = ", ".join(map(repr, METRICS))
        raise ValueError(f"expected {names} or what it takes to a target, such as seconds_to(0.9); got {figure!r}")
    return figure


class GateMetric(Section):
    """How much worse a figure may become before a gate fails, in its own unit: 0.02 of a share is 2 points.

    Args:
        margin: how much worse; the figure's own, unless it is said.
        floor: the least that a cell's mean over seeds may be; it does not move with the baseline.
        ceiling: the most that it may be.
    """

    margin: Annotated[float, Field(ge=0)] | None = None
    floor: float | None = None
    ceiling: float | None = None


class GateSection(Section):
    """What a gate on this suite watches; it changes nothing of what runs.

    Args:
        alpha: level of the test on fresh seeds.
        confirm: how many fresh seeds confirm a drop.
        audit: whether epsilons are audited.
        single_seed: what becomes of a seed that is ruined while the others, and fresh ones, are not: ``report`` says so,
            ``fail`` calls it a regression.
        metrics: which figures, and how much worse they may become; by default those that the run has. What it takes to a
            target, such as ``seconds_to(0.9)``, has no usual margin, and is watched where the suite gives one.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    confirm: Annotated[int, Field(strict=True, ge=3)] = 8
    audit: bool = True
    single_seed: Literal["report", "fail"] = "report"
    metrics: dict[Annotated[str, AfterValidator(watchable)], GateMetric] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _shares(self) -> GateSection:
        for figure, said in self.metrics.items():
            if FIGURES[figure].margin is None and said.margin is None:
                raise ValueError(
                    f"metrics.{figure}: expected a margin in {FIGURES[figure].unit}, as in {{margin: 10}}; it has no usual one"
                )
            for key, value in (("margin", said.margin), ("floor", said.floor), ("ceiling", said.ceiling)):
                if FIGURES[figure].bounds is not None and value is not None and value > 1:
                    raise ValueError(
                        f"metrics.{figure}.{key}: expected a share, such as 0.03 for 3 points; got {value:g}"
                    )
        return self


class TriedSection(Section):
    """One setting that was tried in tuning, and its score; or why it has none.

    Args:
        setting: the defense with its parameters.
        score: its worst mean final accuracy over the attacks, a share in [0, 1].
        why: it has no score.
    """

    setting: str
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    why: str = ""


class TunedSection(Section):
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


class TuningSection(Section):
    """How the defenses of a suite were tuned (`fedguard tune` writes it): a record that changes nothing of what runs.

    Args:
        run: the name of the run that the tuning made.
        attacks: those tuned on, which the suite then leaves out.
        seeds: those tuned on, none of the suite's own.
        budget: settings tried for each defense at most.
        judged_on: which examples the settings were compared on.
        proxy: settings that stood over the suite in the tuning alone, such as other data; none where it was on its own.
        regret: by configured defense, the points of accuracy, as a share, that the choice on the proxy costs on the suite's own
            data; none where nobody asked.
        trained_on: whose records the trainings saw. Those of clients have a cost that no epsilon of the suite counts.
        defenses: what was tried for each.
    """

    run: str = ""
    attacks: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Count, ...], Field(min_length=1)]
    budget: Annotated[int, Field(strict=True, ge=1)]
    judged_on: Literal["test"] = "test"
    proxy: tuple[str, ...] = ()
    regret: dict[str, float] = Field(default_factory=dict)
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


class CellConfig(Section):
    """The settings of one cell.

    Args:
        architecture: how the parties train together.
        network: how long everything takes in simulated seconds; null where nobody asks for times.
        attack: on the training or on the clients' privacy; ``none`` for no attack.
        defense: a pipeline, ``client transforms >> mixings >> rule``; of an app, ``own`` for its own strategy alone.
        app: an app of other people, which takes the place of task, training and the like; null for FedGuard's own.
    """

    task: TaskSection = TaskSection()
    clients: ClientsSection = ClientsSection()
    training: TrainingSection = TrainingSection()
    protocol: ProtocolSection = ProtocolSection()
    threat: ThreatSection = ThreatSection()
    observer: ObserverSection = ObserverSection()
    server: ServerSection = ServerSection()
    evaluation: EvaluationSection = EvaluationSection()
    architecture: Spec = "server"
    network: NetworkSection | None = None
    attack: Spec = "none"
    defense: Spec | list[Spec] = "mean"
    app: AppSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_it_was_written(cls, data: Any) -> Any:
        return without_description(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _consistent(self) -> CellConfig:
        training = self.training
        latest = max((stay.joins for stay in self.clients.schedule), default=1)
        if latest > training.rounds:
            raise ValueError(
                f"clients.schedule: expected joins of at most training.rounds = {training.rounds}; got {latest}"
            )
        if self.threat.last_round is not None and self.threat.last_round < self.threat.first_round:
            raise ValueError("threat.last_round: expected no less than threat.first_round")
        if self.app is None and self.observer.round > training.rounds:
            raise ValueError(f"observer.round: expected at most training.rounds = {training.rounds}")
        self.target.check(self)
        return self

    @property
    def target(self) -> Target:
        """What is put to attacks and defenses."""
        return ComposedTarget() if self.app is None else AppTarget(self.app)


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
    matrix: dict[str, list[Any]] = Field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    gate: GateSection = GateSection()
    tuning: TuningSection | None = None

    @model_validator(mode="after")
    def _check_tuning_seeds(self) -> Suite:
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
    return validate_data(Suite, document.data, document)
