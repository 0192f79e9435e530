"""The matrix of a suite, laid out: one cell per combination, each with an identity that does not depend on the others."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import itertools
import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedguard.config.algorithms import algorithm_reasons, settings
from fedguard.config.document import Document, Key, dotted, parse_yaml
from fedguard.config.protocol import check, effective, privacy_reasons
from fedguard.config.schema import CellConfig, Spec, Suite, validated
from fedguard.contracts import (
    Architecture,
    Data,
    Ensemble,
    InferenceAttack,
    Model,
    Participation,
    Partition,
    Pipeline,
    PoisonAttack,
    Sight,
    ThreatModel,
)
from fedguard.errors import ConfigError, PreconditionError, UnknownName, brief
from fedguard.registry import registry, split_spec
from fedguard.visibility import Verdict, exposed, judge, judge_inference

#: Part of every cell's identity: raised by each change that alters results, so that older records are not taken for new ones.
RESULTS_VERSION = 4


@dataclass(frozen=True)
class Cell:
    """One combination: task x partition x architecture x protocol x attack x defense, still without a seed."""

    config: CellConfig
    data: Data
    model: Model
    partition: Partition
    architecture: Architecture
    attack: PoisonAttack | None
    pipeline: Pipeline
    ensemble: Ensemble | None = None
    inference: InferenceAttack | None = None

    @classmethod
    def build(cls, config: CellConfig, where: Mapping[str, str] | None = None) -> Cell:
        """The cell of a configuration.

        Args:
            where: for messages, where the attack, the defense and so on stand.

        Raises:
            ConfigError: unknown names or parameters.
        """
        places, known = where or {}, registry()
        named = _attack(config.attack, places.get("attack", "attack"))
        task, clients = config.task, config.clients.participation
        check(config.protocol, clients, config.training, places.get("protocol", "protocol"))
        return cls(
            config,
            known.build("data", task.data, places.get("task.data", "task.data")),
            known.build("model", task.model, places.get("task.model", "task.model")),
            known.build("partition", task.partition, places.get("task.partition", "task.partition")),
            known.build("architecture", config.architecture, places.get("architecture", "architecture")),
            named if isinstance(named, PoisonAttack) else None,
            known.pipeline(config.defense, places.get("defense", "defense")),
            named if isinstance(named, Ensemble) else None,
            named if isinstance(named, InferenceAttack) else None,
        )

    @property
    def adversary(self) -> PoisonAttack | Ensemble | None:
        """Who attacks the training: the attack, or the ensemble of which the worst is meant."""
        return self.attack or self.ensemble

    @property
    def named(self) -> PoisonAttack | Ensemble | InferenceAttack | None:
        """What the suite names as the attack, be it on the training or on the clients' privacy."""
        return self.adversary or self.inference

    @cached_property
    def members(self) -> tuple[Cell, ...]:
        """For an ensemble, the same cell under each of its attacks that may run here, each once."""
        specs = self.ensemble.members() if self.ensemble else ()
        cells = [Cell.build(self.config.model_copy(update={"attack": spec})) for spec in specs]
        return tuple({cell.id: cell for cell in cells if not cell.verdict.reasons}.values())

    @cached_property
    def hostile(self) -> int:
        """Number of malicious clients in the federation."""
        return self.config.clients.count(self.config.clients.malicious)

    @property
    def copying(self) -> bool:
        """Whether the malicious clients hold copies of honest clients' examples instead of examples of their own."""
        return self.config.task.partition_among == "honest" and self.hostile > 0

    @cached_property
    def told(self) -> int:
        """Number of malicious clients that the server is told to expect, in the whole federation."""
        assumed = self.config.clients.assumed_f
        if assumed == "unknown":
            return self._most_told
        return self.hostile if assumed is None else self.config.clients.count(assumed)

    @property
    def _most_told(self) -> int:
        """The largest minority of all clients that the pipeline can be told and still run."""
        for told in range((self.config.clients.total - 1) // 2, 0, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self.rows, self._told_rows(told))
                return told
        return 0

    @property
    def participation(self) -> Participation:
        return self.config.clients.participation

    @property
    def rows(self) -> int:
        """Number of rows that the server's rule gets in a round: single updates, or what the protocol makes of them."""
        return self.config.protocol.rows(self.participation.expected)

    @property
    def told_rows(self) -> int:
        """How many of these rows the rule is told to be malicious."""
        return self._told_rows(self.told)

    def _told_rows(self, told: int, clients: int | None = None) -> int:
        clients = self.participation.expected if clients is None else clients
        return min(-(-told * clients // self.participation.total), self.config.protocol.rows(clients))

    @property
    def threat(self) -> ThreatModel:
        threat = self.config.threat
        return ThreatModel(
            self.config.clients.total, self.hostile, threat.grants, threat.first_round, threat.last_round, threat.every
        )

    @property
    def threat_left(self) -> ThreatModel:
        """The threat without what architecture and protocol hide from the colluders."""
        shown = exposed(self.architecture.exposes, self.config.protocol.mode).clients
        return dataclasses.replace(self.threat, grants=self.threat.grants & shown)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether it may run, and what its two sides see."""
        exposure = exposed(self.architecture.exposes, self.config.protocol.mode, self.config.server.root_data > 0)
        mode = self.config.protocol.mode
        verdict = judge(self.pipeline, self.attack, exposure, self.threat, self.rows, self.told_rows, mode)
        reasons = list(verdict.reasons)
        sees = Sight.NOTHING
        if self.inference is not None:
            of_inference, sees = judge_inference(
                self.inference, exposure, self.config.observer.server == "malicious", mode, self.trusted_server
            )
            reasons += of_inference
        reasons += privacy_reasons(self.config.protocol, self.pipeline, self.model, self.data)
        reasons += algorithm_reasons(
            self.config.training,
            self.participation,
            self.config.protocol,
            self.pipeline,
            verdict.rule_sees,
            self.adversary,
            self.inference,
        )
        if self.copying and self.config.protocol.privacy != "none":
            reasons.append(
                "noise hides an example that one client holds; with task.partition_among: honest a malicious client holds a "
                "copy of it. Set partition_among: all."
            )
        if self.adversary is not None and self.hostile == 0:
            reasons.append(f"{self.adversary.name} has no client to act through. Set clients.malicious.")
        if self.ensemble is not None and not reasons and not self.members:
            reasons.append(f"none of the attacks of {self.ensemble.name} may run here. Grant more in threat.knowledge.")
        return dataclasses.replace(verdict, reasons=tuple(reasons), inference_sees=sees)

    @property
    def trusted_server(self) -> bool:
        """Whether the server itself adds the noise, so that who infers sees only what it publishes."""
        privacy = self.config.protocol.privacy
        return privacy != "none" and privacy.kind == "client"

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """JSON with every default spelled out, from which the cell can be built again.

        A cell without attack is the same whoever would have attacked, so those settings are left at their defaults; but for
        how many hold copies of others' examples.
        """
        config = self.config
        clients: dict[str, Any] = {
            "total": config.clients.total,
            "per_round": self.participation.expected,
            "sampling": config.clients.sampling if self.participation.expected < config.clients.total else "fixed",
            "malicious": self.hostile if self.adversary or self.copying else 0,
            "assumed_f": "unknown" if config.clients.assumed_f == "unknown" else self.told,
        }
        if self.participation.schedule:
            clients["schedule"] = [dataclasses.asdict(stay) for stay in self.participation.schedule]
        threat = config.threat if self.adversary else type(config.threat)()
        content = {
            "task": {
                "data": self.data.spec(),
                "model": self.model.spec(),
                "partition": self.partition.spec(),
                "partition_seed": config.task.partition_seed,
                "partition_among": "honest" if self.copying else "all",
            },
            "clients": clients,
            "training": settings(config.training),
            "protocol": effective(config.protocol),
            "threat": threat.model_dump(mode="json"),
            "server": config.server.model_dump(),
            "evaluation": config.evaluation.model_dump(),
            "architecture": self.architecture.name,
            "attack": self.named.spec() if self.named else "none",
            "defense": self.pipeline.spec(),
        }
        if self.inference:
            content["observer"] = self.config.observer.model_dump()
        # Tuples become lists: what is hashed is what a record holds.
        return dict(json.loads(json.dumps(content)))

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of SHA-256 over the canonical form and `RESULTS_VERSION`."""
        text = json.dumps([RESULTS_VERSION, self.canonical], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """``alie(z=1.5) against nnm >> trimmed_mean``."""
        return f"{self.named or 'no attack'} against {self.pipeline}"

    @property
    def defended(self) -> bool:
        """Whether the rule is another than the plain mean, or the protocol itself defends."""
        return str(self.pipeline) != "mean" or self.config.protocol != self.config.protocol.undefended

    def corner(self, *, attacked: bool, defended: bool) -> Cell:
        """One of the corners: with or without the attack, with the defense or the plain mean."""
        pipeline = self.pipeline if defended else registry().pipeline("mean")
        changed: dict[str, Any] = {} if attacked else {"attack": "none"}
        if not defended:
            changed |= {"defense": "mean", "protocol": self.config.protocol.undefended}
        config = self.config.model_copy(update=changed)
        return dataclasses.replace(
            self,
            config=config,
            attack=self.attack if attacked else None,
            ensemble=self.ensemble if attacked else None,
            inference=self.inference if attacked else None,
            pipeline=pipeline,
        )

    @property
    def silenced(self) -> Cell:
        """The same cell while the colluders send nothing in the rounds in which they would act: their data are absent, no more.

        It is a cell with the fault `dropout`, the same for all attacks. The rule is told what it is told in every round in
        which clients stay away: the assumed share of those that sent. Where it cannot run on so few with that, it is told the
        most with which it can: that nobody among these is malicious is known here. Means of groups become one mean, for groups
        of so few may be too small.
        """
        clients = self.config.clients
        away = round(self.hostile * self.participation.expected / self.participation.total)
        left = max(self.participation.expected - away, 1)
        for told in range(self.told, -1, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self.config.protocol.rows(left), self._told_rows(told, left))
                if told < self.told:
                    clients = clients.model_copy(update={"assumed_f": told})
                break
        protocol = self.config.protocol
        if protocol.mode == "groups" and str(self.pipeline) == "mean":
            protocol = dataclasses.replace(protocol, secure_aggregation="full")
        threat = self.config.threat.model_copy(update={"knowledge": ("own_data",)})
        changes = {"clients": clients, "protocol": protocol, "threat": threat, "attack": "dropout"}
        attack: PoisonAttack = registry().build("attack", "dropout")
        config = self.config.model_copy(update=changes)
        return dataclasses.replace(self, config=config, attack=attack, ensemble=None, inference=None)

    @property
    def compared_with(self) -> dict[str, Cell]:
        """The cells with which a record is compared, by the names under which it keeps their final accuracies."""
        cells = {
            "clean_mean": self.corner(attacked=False, defended=False),
            "clean_defense": self.corner(attacked=False, defended=True),
        }
        if self.adversary is not None:
            attack_mean = self.corner(attacked=True, defended=False)
            cells |= {
                "silent_mean": attack_mean.silenced,
                "silent_defense": self.silenced,
                "attack_mean": attack_mean,
            }
        return cells


@dataclass(frozen=True)
class Plan:
    """A suite laid out.

    Attributes:
        suite: the suite.
        positions: each combination of the matrix: what was swept, as text, and the cell. Two may share a cell.
        corners: cells that stand in no position, but that the four corners of others need.
        folder: where plug-in modules that the suite names are looked for beside the working directory.
    """

    suite: Suite
    positions: tuple[tuple[dict[str, str], Cell], ...]
    corners: tuple[Cell, ...]
    folder: Path | None = None

    @property
    def cells(self) -> list[Cell]:
        """Every cell once, those first that others compare themselves with."""
        unique = {cell.id: cell for cell in (*self.corners, *(cell for _, cell in self.positions))}
        return sorted(unique.values(), key=lambda cell: (cell.named is not None) + cell.defended)

    def only(self, cells: Container[str]) -> Plan:
        """The plan without the positions of other cells; what their corners need is kept."""
        kept = tuple(position for position in self.positions if position[1].id in cells)
        return dataclasses.replace(self, positions=kept, corners=_corners([cell for _, cell in kept]))


def plan(document: Document, suite: Suite) -> Plan:
    """Lay out the matrix of ``suite``, which was read from ``document``.

    Raises:
        ConfigError: unknown keys, names or parameters, with the place where they stand.
    """
    folder = str(document.folder) if document.folder else None
    if folder and folder not in sys.path:  # plug-ins, and functions of the user's own, stand beside the suite
        sys.path.append(folder)
    registry().use_modules(suite.plugins, [document.where(("plugins", one)) for one in range(len(suite.plugins))])
    for index, attack in enumerate(suite.tuning.attacks if suite.tuning else ()):
        registry().build("attack", attack, document.where(("tuning", "attacks", index)))
    base = suite.model_dump(mode="json", by_alias=True, include=set(CellConfig.model_fields))
    positions = []
    for swept, data, where in _combinations(base, suite.matrix, document):
        cell = Cell.build(validated(CellConfig, data, document, where.get("", ())), _places(where, document))
        labels = {"attack": str(cell.named or "none"), "defense": str(cell.pipeline)}
        positions.append(({**{key: labels.get(key) or _short(value) for key, value in swept.items()}, **labels}, cell))
    _seeds_apart(suite, [cell for _, cell in positions])
    _tuned_apart(suite, [cell for _, cell in positions], document)
    return Plan(suite, tuple(positions), _corners([cell for _, cell in positions]), document.folder)


def _corners(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells that the four corners of ``cells`` need and that are not among them."""
    known = {cell.id for cell in cells}
    corners: dict[str, Cell] = {}
    for cell in cells:
        if not cell.verdict.reasons:
            needed = [corner for corner in cell.compared_with.values() if corner.id not in known]
            # The worst case against the mean would be another ensemble to train.
            corners |= {corner.id: corner for corner in needed if not corner.ensemble}
    return tuple(corners.values())


def _attack(spec: Spec, where: str) -> PoisonAttack | Ensemble | InferenceAttack | None:
    """What stands on the axis of attacks: an attack on the training, or on the clients' privacy; None for ``none``."""
    name, _ = split_spec("attack", spec, where)
    if name == "none":
        return None
    kind = "inference" if name in registry().names("inference") else "attack"
    if name not in registry().names(kind):
        raise UnknownName("attack", name, [*registry().names("attack"), *registry().names("inference")], where)
    found: PoisonAttack | Ensemble | InferenceAttack = registry().build(kind, spec, where)
    return found


def _seeds_apart(suite: Suite, cells: Sequence[Cell]) -> None:
    """An attack is never reported on the seeds on which it was chosen."""
    for cell in cells:
        both = set(cell.ensemble.choose_on() if cell.ensemble else ()) & set(suite.seeds)
        if both:
            raise ConfigError(
                f"seeds: expected none of the seeds on which {cell.adversary} chooses; got {sorted(both)}. Take smaller ones."
            )


def _tuned_apart(suite: Suite, cells: Sequence[Cell], document: Document) -> None:
    """What was chosen among trainings on the clients' records tells of these, and an epsilon counts one training alone."""
    private = any(cell.config.protocol.privacy != "none" for cell in cells)
    if suite.tuning and suite.tuning.trained_on == "clients" and private:
        raise ConfigError(
            f"{document.where(('tuning',))}: the settings were chosen among trainings on the clients' records, and the epsilon "
            "of protocol.privacy counts one training alone. Tune on public data and declare that (tuning.trained_on: public), "
            "or leave out tuning or protocol.privacy."
        )


def override(document: Document, settings: Sequence[str]) -> Document:
    """The document with ``a.b=value`` settings of the command line put in; values are YAML."""
    data, keys = copy.deepcopy(document.data), set(document.settings)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, as in --set training.rounds=10.")
        first, dot, rest = name.partition(".")
        key = (first, rest) if first == "matrix" and dot else tuple(name.split("."))  # a swept key is one, dots and all
        _put(data, key, parse_yaml(text, f"--set {name}")[0] if text else "", f"--set {name}")
        keys.add(key)
    return dataclasses.replace(document, data=data, settings=frozenset(keys))


def _combinations(
    base: Mapping[str, Any], matrix: Mapping[str, list[Any]], document: Document
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Key]]]:
    """For each combination: what is swept, the settings, and where each swept value stands (the last one under "")."""
    for key in matrix:
        if key.partition(".")[0] not in CellConfig.model_fields:
            raise UnknownName("key to sweep", key, CellConfig.model_fields, document.where(("matrix", key)))
    for chosen in itertools.product(*(list(enumerate(values)) for values in matrix.values())):
        data = copy.deepcopy(dict(base))
        swept, where = {}, {}
        for key, (index, value) in zip(matrix, chosen, strict=True):
            place: Key = ("matrix", key, index)
            _put(data, tuple(key.split(".")), value, document.where(place))
            swept[key] = value
            where[key] = where[""] = place
        yield swept, data, where


def _places(where: Mapping[str, Key], document: Document) -> dict[str, str]:
    """Where the specs stand, for messages: in the matrix if they are swept, else at their own key."""
    names = ("attack", "defense", "architecture", "task.data", "task.model", "task.partition")
    places = {name: document.where(where.get(name, tuple(name.split(".")))) for name in names}
    swept = [place for key, place in where.items() if key.partition(".")[0] == "protocol"]
    return {**places, "protocol": document.where(swept[0] if swept else ("protocol",))}


def _put(data: dict[str, Any], key: Key, value: Any, where: str) -> None:
    """Set a dotted key; on the way, a plain name such as ``iid`` becomes a mapping with that name."""
    for part in key[:-1]:
        below = data.setdefault(str(part), {})
        if isinstance(below, str):
            below = data[str(part)] = {"name": below}
        if not isinstance(below, dict):
            raise ConfigError(f"{where}: {dotted(key)} cannot be set: {part!r} is {brief(below)}, not a mapping.")
        data = below
    data[str(key[-1])] = value


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        name = value.get("name", value.get("kind", ""))
        rest = ", ".join(f"{key}={_short(one)}" for key, one in value.items() if key not in ("name", "kind"))
        return f"{name}({rest})" if rest else str(name)
    return f"{value:g}" if isinstance(value, float) else str(value)
