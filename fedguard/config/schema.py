"""The schema of a suite. Every key has a default; an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    field_validator,
    model_validator,
)

from fedguard.config.app_section import BROUGHT, OWN, AppSection, read_sites, without_description
from fedguard.config.document import Document
from fedguard.config.renaming import renew, renew_document
from fedguard.config.sections import (
    Count,
    EvaluationSection,
    ObserverSection,
    Section,
    ServerSection,
    TaskSection,
)
from fedguard.config.validation import validate_data
from fedguard.contracts import Network, Participation, Protocol, ThreatModel, Training
from fedguard.contracts.participation import sites_named
from fedguard.contracts.specs import Spec
from fedguard.errors import brief
from fedguard.metrics.figures import FIGURES, TargetMetric
from fedguard.retired import renew_metric

#: Bounds of a suite: its seeds, and the combinations of its matrix
MOST_SEEDS, MOST_POSITIONS = 10_000, 50_000

#: Metrics of a record that a gate may watch
METRICS = tuple(name for name, figure in FIGURES.items() if figure.margin is not None)


def watchable(figure: str) -> str:
    """Check that a gate may watch a metric, and return its name today.

    Raises:
        ValueError: a gate cannot watch it.
    """
    figure = renew_metric(figure)  # stored runs, baselines and verdicts are older than their reader
    if figure not in METRICS and not (figure in FIGURES and isinstance(FIGURES[figure], TargetMetric)):
        names = ", ".join(map(repr, METRICS))
        raise ValueError(f"expected {names} or what it takes to a target, such as seconds_to(0.9); got {figure!r}")
    return figure


class GateMetric(Section):
    """How much worse a metric may become before the gate fails, in its own unit: 0.02 of a share is 2 points.

    Args:
        margin: allowed drop; by default the metric's own margin.
        floor: smallest allowed mean of a cell over the seeds; it does not move with the baseline.
        ceiling: largest allowed mean.
    """

    margin: Annotated[float, Field(ge=0)] | None = None
    floor: float | None = None
    ceiling: float | None = None


class GateSection(Section):
    """What a gate on this suite checks; it does not change what runs.

    Args:
        alpha: significance level of the test on confirmation seeds.
        confirm: number of fresh seeds on which a drop is tested again.
        audit: whether epsilons are audited.
        single_seed: what happens if one seed collapses while the others, and the confirmation seeds, do not: ``report`` lists
            it, ``fail`` calls it a regression.
        metrics: the watched metrics and their allowed drops; by default all metrics of the run that have a margin. Cost to
            reach a target, such as ``seconds_to(0.9)``, has no default margin and is watched only if listed here.
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


class ReplaySection(Section):
    """What is kept of the rounds of one seed, to be replayed. It does not change what runs, and no cell's identity.

    Args:
        seed: the seed; null for the suite's first.
        every: distance of the kept rounds, from the first on.
    """

    seed: Count | None = None
    every: Annotated[int, Field(strict=True, ge=1)] = 1


class TriedSection(Section):
    """One setting that was tried in tuning, with its score or the reason why it has none.

    Args:
        setting: the defense with its parameters.
        score: its lowest mean final accuracy over the attacks, in [0, 1].
        why: reason for a missing score.
    """

    setting: str
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    why: str = ""


class TunedSection(Section):
    """What was tried for one defense, the configured setting first, and what was chosen.

    Args:
        chosen: the setting with the best score.
        candidates: all settings that were tried.
    """

    chosen: str
    candidates: Annotated[tuple[TriedSection, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> TunedSection:
        if self.chosen not in [candidate.setting for candidate in self.candidates]:
            raise ValueError(f"chosen: expected the setting of one of the candidates; got {self.chosen!r}")
        return self


class TuningSection(Section):
    """How the defenses of a suite were tuned, as written by `fedguard tune`. It does not change what runs.

    Args:
        run: name of the tuning run.
        attacks: the attacks of the tuning, which the suite does not contain.
        seeds: the seeds of the tuning, none of which is a seed of the suite.
        budget: largest number of settings tried per defense.
        judged_on: the examples on which the settings were compared.
        proxy: settings that replaced those of the suite during the tuning only, such as other data; empty if none were
            replaced.
        regret: accuracy, as a share, that the choice on the proxy costs on the suite's own data, by configured defense; empty
            if it was not measured.
        trained_on: owner of the records used in the tuning. Records of clients have a privacy cost that no epsilon of the suite
            counts.
        defenses: what was tried for each defense.
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
        architecture: who trains with whom, and when.
        network: durations in simulated seconds; null if time is not simulated.
        attack: an attack on the training or on the clients' privacy; ``none`` for no attack.
        defense: a pipeline ``client transforms >> mixings >> rule``; for an app, ``own`` is its own strategy alone.
        app: an existing app that replaces task, training and other sections; null for a training by FedGuard.
    """

    task: TaskSection = TaskSection()
    clients: Participation = Participation()
    training: Training = Training()
    protocol: Protocol = Protocol()
    threat: ThreatModel = ThreatModel()
    observer: ObserverSection = ObserverSection()
    server: ServerSection = ServerSection()
    evaluation: EvaluationSection = EvaluationSection()
    architecture: Spec = "server"
    network: Network | None = None
    attack: Spec = "none"
    defense: Spec | list[Spec] = "mean"
    app: AppSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_it_was_written(cls, data: Any) -> Any:
        return read_sites(renew(without_description(data))[0]) if isinstance(data, dict) else data

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
        if self.app is not None:
            self._check_app(self.app)
        elif self.defense == OWN:
            raise ValueError("defense: own is the strategy of an app; expected an app beside it, or another defense")
        return self

    def _check_app(self, app: AppSection) -> None:
        """Raise ValueError if settings of the cell have no meaning for an app."""
        own = {"clients": {"total", "malicious", "assumed_f"}, "threat": {"knowledge"}}
        for name in (*BROUGHT, *own):
            section, usual = getattr(self, name), CellConfig.model_fields[name].default
            if name in own:
                section = replace(section, **{key: getattr(usual, key) for key in own[name]})
            if section != usual:
                keys = f" but {', '.join(sorted(own[name]))}" if name in own else ""
                raise ValueError(f"app: it brings its own {name}; expected nothing there{keys}")
        if sites_named(self.clients.malicious):
            raise ValueError(
                "clients.malicious: the nodes of an app have no fixed order; expected a number of them, or for an NVFlare job "
                "app.malicious"
            )
        if app.sites not in (None, self.clients.total):
            raise ValueError(f"app.sites: expected clients.total = {self.clients.total}; got {app.sites}")
        # A cell without attack has none, and the same honest sites
        if app.malicious is not None and self.clients.malicious not in (0, len({*app.malicious})):
            raise ValueError(
                f"app.malicious: expected clients.malicious = {self.clients.malicious} names of sites; got "
                f"{', '.join(app.malicious) or 'none'}"
            )
        if app.training is None and self.observer != CellConfig.model_fields["observer"].default:
            raise ValueError(
                "observer: an app names neither its model nor its data, so nobody can look for them in its messages; expected "
                "nothing there. Leave it out, or say in app.training what its nodes train: {model: module:function, data: "
                "module:function, lr: 0.1}"
            )
        if self.observer.seat != "server":
            raise ValueError(
                f"observer.seat: an app's nodes receive from its server alone; expected server; got {self.observer.seat}"
            )


class Suite(CellConfig):
    """A whole suite file: the settings of a cell, and the values swept over them.

    Args:
        schema: version of this format.
        name: name of the run folder; by default the stem of the suite's file.
        seeds: number of seeds, counted from 0, or a list of seeds.
        matrix: lists of values by dotted key, such as ``clients.malicious: [0, 2, 4]``. The suite is their product.
        plugins: modules with your own algorithms, beside the suite file or installed.
        gate: what a gate on this suite checks.
        tuning: how its defenses were tuned.
        replay: what is kept of the rounds, to be replayed; null for nothing.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    name: str = "suite"
    seeds: tuple[Count, ...] = (0, 1, 2)
    matrix: dict[str, list[Any]] = Field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    gate: GateSection = GateSection()
    tuning: TuningSection | None = None
    replay: ReplaySection | None = None

    @property
    def replay_seed(self) -> int | None:
        """The seed whose rounds are kept; None without a replay."""
        if self.replay is None:
            return None
        return self.seeds[0] if self.replay.seed is None else self.replay.seed

    @model_validator(mode="after")
    def _check_replay_seed(self) -> Suite:
        if self.replay is not None and self.replay_seed not in self.seeds:
            raise ValueError(f"replay.seed: expected one of seeds; got {self.replay_seed}")
        return self

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
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
            return tuple(range(value))
        listed = list(value) if isinstance(value, list | tuple | range) else []
        if not 1 <= len(listed) <= MOST_SEEDS or len(set(map(brief, listed))) < len(listed):
            raise ValueError(
                f"expected a number of seeds from 1 to {MOST_SEEDS:,}, or a list of 1 to {MOST_SEEDS:,} different seeds; got "
                f"{brief(value)}"
            )
        return listed

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


#: Valid names of a run, in words
A_RUN_NAME = "a folder name of letters, digits, '.', '_' and '-'"


def is_run_name(value: str) -> bool:
    """Whether this is a valid run name. A valid name cannot leave the run store, since it has no path separator."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value))


def read_suite(document: Document) -> Suite:
    """Validate a document.

    Raises:
        ConfigError: one line with file, line, key, the expected value and the actual one.
    """
    document = renew_document(document)[0]
    return validate_data(Suite, {"name": _default_name(document), **document.data}, document)


def _default_name(document: Document) -> str:
    """The file's stem; for a mapping ``untitled-HASH``, whatever its seeds, so that more of them join the same run."""
    if document.name:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(document.name).stem).strip("-._")[:100] or "suite"
    settings = {key: value for key, value in document.data.items() if key != "seeds"}
    text = json.dumps(settings, sort_keys=True, default=str)
    return f"untitled-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
