"""A cell: one combination of a suite's matrix, with an identity that does not depend on other cells."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from fedguard.config.algorithms import build_algorithm, build_fate, put_adapters
from fedguard.config.app_section import OWN
from fedguard.config.protocol import check, masking
from fedguard.config.renaming import as_stored
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    Architecture,
    Availability,
    Cell,
    Data,
    Ensemble,
    Environment,
    EvasionAttack,
    Exposure,
    InferenceAttack,
    Partition,
    PoisonAttack,
    Sight,
    StatisticsFate,
)
from fedguard.contracts.channels import STATISTICS
from fedguard.contracts.first_model import MARK
from fedguard.contracts.specs import Spec, split_spec
from fedguard.errors import ConfigError, PreconditionError, UnknownName
from fedguard.registry import Registry
from fedguard.visibility import Admissibility, derive_exposure, judge, judge_inference

#: Part of every cell's identity. A change that alters results raises it, so that older records are not reused.
RESULTS_VERSION = 5


@dataclass(frozen=True, kw_only=True)
class PlannedCell(Cell, ABC):
    """A cell of a suite, with its settings, whether it may run, and its identity.

    What it evaluates is a training that FedGuard composes, or an existing app: a subclass for each
    (`fedguard.config.layout.build_cell`), whose trials `fedguard.bench.running.procedures` runs.

    Attributes:
        undefended: the defense with which others are compared.
        silences: whether malicious clients can be made to send nothing, which separates lost data from harm.
        judged: what its rule and its attack see, and why one of them may not run.
    """

    undefended: ClassVar[str]
    silences: ClassVar[bool]

    config: CellConfig
    #: With which fates the model is evaluated beside `statistics`
    compared_fates: tuple[StatisticsFate, ...] = ()
    data: Data | Environment
    partition: Partition
    architecture: Architecture
    known: Registry = dataclasses.field(repr=False, compare=False)
    judged: Admissibility = dataclasses.field(default_factory=lambda: Admissibility(()))

    @classmethod
    def build(cls, config: CellConfig, known: Registry, where: Mapping[str, str] | None = None) -> Self:
        """Build the cell of a configuration.

        Args:
            known: the algorithms that it may name.
            where: locations of the attack, the defense and other specs, for messages.

        Raises:
            ConfigError: unknown names or parameters.
        """
        places, task = where or {}, config.task
        named = _attack(config.attack, known, places.get("attack", "attack"))
        at = places.get("protocol.secure_aggregation", "protocol.secure_aggregation")
        algorithm, training = build_algorithm(config.training, known, places)
        pipeline = known.pipeline(_rule(config), places.get("defense", "defense"))
        at_fate = places.get("training.statistics", "training.statistics")
        statistics, training = build_fate(training, algorithm, pipeline, known, at_fate)
        model = known.build("model", task.model, places.get("task.model", "task.model"))
        model, training = put_adapters(model, training, known, places.get("training.adapters", "training.adapters"))
        cell = cls(
            config=config,
            algorithm=algorithm,
            training=training,
            statistics=statistics,
            protocol=config.protocol,
            masking=masking(config.protocol.secure_aggregation, known, at),
            noise=known.build("noise", config.protocol.privacy, places.get("protocol.privacy", "protocol.privacy")),
            clients=config.clients,
            data=known.build("data", task.data, places.get("task.data", "task.data")),
            model=model,
            partition=known.build("partition", task.partition, places.get("task.partition", "task.partition")),
            architecture=known.build("architecture", config.architecture, places.get("architecture", "architecture")),
            attack=named if isinstance(named, PoisonAttack) else None,
            pipeline=pipeline,
            known=known,
            ensemble=named if isinstance(named, Ensemble) else None,
            inference=named if isinstance(named, InferenceAttack) else None,
            network=config.network,
            availability=_availability(config, known, places.get("network.availability", "network.availability")),
            evasion=_evasion(config, known, places.get("evaluation.evasion", "evaluation.evasion")),
            compared_fates=_fates(config, known, places.get("evaluation.statistics", "evaluation.statistics")),
            shared=task.shared,
            watched_round=config.observer.round,
        )
        check(cell, places.get("protocol", "protocol"))
        return cell.with_parts()

    def with_parts(self, **parts: Any) -> Self:
        """The cell with these parts in the places of its own, and with what follows from them."""
        config = parts.get("config", self.config)
        return dataclasses.replace(self, **{"clients": config.clients, "protocol": config.protocol, **parts})._settle()

    def _settle(self) -> Self:
        """Determine from the parts who is assumed to be malicious, how updates meet, and who sees what."""
        config, assumed_f, more = self.config, self._assume_f(), self.architecture.more_rows
        known = tuple(name for name in config.threat.knowledge if name != "defense" or not self.own)
        threat, rows = dataclasses.replace(config.threat, knowledge=known), self._count_assumed_rows(assumed_f)
        named = self.training.model_copy(update={"statistics": config.training.statistics})
        statistics, training = build_fate(named, self.algorithm, self.pipeline, self.known)
        judged = judge(self.pipeline, self.attack, self.exposure, threat, self.rows, rows, self.masking, more)
        return dataclasses.replace(
            self,
            training=training,
            statistics=statistics,
            threat=threat,
            assumed_f=assumed_f,
            meeting=self.architecture.meeting(self.clients, self.training.rounds),
            copied=config.task.partition_among == "honest" and self.malicious > 0,
            lookers=config.observer.nodes if self.inference is not None and config.observer.seat != "server" else 0,
            judged=judged,
            attack_sees=judged.attack_sees,
            rule_sees=judged.rule_sees,
        )

    @abstractmethod
    def reasons(self) -> Iterator[str]:
        """Why it may not run, apart from what its rule and its attack may see."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """The content of `canonical`: values that JSON can hold, with every default spelled out."""

    def files(self) -> Mapping[str, Sequence[Path]]:
        """Files beside plug-ins that are executed, by the name under which a record stores their digest."""
        return {}

    @property
    def own(self) -> bool:
        """Whether the defense is the app's own strategy alone."""
        return self.config.defense == OWN

    @property
    def defense(self) -> str:
        """Name of the defense."""
        return OWN if self.own else str(self.pipeline)

    @property
    def named(self) -> PoisonAttack | Ensemble | InferenceAttack | None:
        """The attack that the suite names, on the training or on the clients' privacy."""
        return self.adversary or self.inference

    @cached_property
    def members(self) -> tuple[PlannedCell, ...]:
        """The cells of an ensemble: the same cell under each of its admissible attacks, without duplicates."""
        specs = self.ensemble.members() if self.ensemble else ()
        cells = [self.build(self.config.model_copy(update={"attack": spec}), self.known) for spec in specs]
        return tuple({cell.id: cell for cell in cells if not cell.verdict.reasons}.values())

    @cached_property
    def malicious(self) -> int:
        """Number of malicious clients in the federation."""
        return self.clients.count(self.clients.malicious)

    def _assume_f(self) -> int:
        """Number of malicious clients in the federation that the server assumes."""
        assumed = self.clients.assumed_f
        if assumed == "unknown":
            return self._most_assumed_f
        return self.malicious if assumed is None else self.clients.count(assumed)

    @property
    def _most_assumed_f(self) -> int:
        """The largest minority of all clients that the pipeline can assume and still run."""
        # Below half: a rule cannot tell a malicious majority from an honest one
        for assumed_f in range((self.clients.total - 1) // 2, 0, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self.rows, self._count_assumed_rows(assumed_f))
                return assumed_f
        return 0

    @property
    def in_sessions(self) -> Cell:
        """The cell with the sessions that the architecture forms, if it may run."""
        return self if self.verdict.reasons else self.architecture.sessions(self)

    @property
    def rows(self) -> int:
        """Number of rows that the aggregation rule gets in a round: single updates, or the sums that the protocol reveals."""
        return self._rows(self.architecture.updates(self.clients))

    def _rows(self, updates: int) -> int:
        return self.masking.rows(self.architecture.rows(updates))

    @property
    def assumed_rows(self) -> int:
        """Number of these rows that the rule assumes to be malicious."""
        return self._count_assumed_rows(self.assumed_f)

    def _count_assumed_rows(self, assumed_f: int, clients: int | None = None) -> int:
        clients = self.architecture.updates(self.clients) if clients is None else clients
        # Rounded up, so that no part of a malicious client is assumed away; there cannot be more malicious rows than rows
        return min(-(-assumed_f * clients // self.clients.total), self._rows(clients))

    @property
    def exposure(self) -> Exposure:
        """What server and clients can see."""
        return derive_exposure(self.architecture.exposes, self.masking, self.config.server.root_data > 0)

    @property
    def _observer_exposure(self) -> Exposure:
        """What an observer can see: also the running statistics, where clients send any in a round."""
        sent = STATISTICS in self.architecture.channels and self.statistics.sends and not self.statistics.fresh
        return derive_exposure(self.architecture.exposes, self.masking, self.config.server.root_data > 0, sent)

    @cached_property
    def verdict(self) -> Admissibility:
        """Whether the cell may run, and what its rule and its attack see."""
        reasons = list(self.judged.reasons)
        sees = Sight.NOTHING
        if self.inference is not None:
            of_inference, sees = self._judge_observer(self.inference, self._observer_exposure)
            reasons += of_inference
        reasons += self.reasons()
        if self.adversary is not None and self.malicious == 0:
            reasons.append(f"{self.adversary.name} has no client to act through. Set clients.malicious.")
        if self.ensemble is not None and not reasons and not self.members:
            reasons.append(f"none of the attacks of {self.ensemble.name} may run here. Grant more in threat.knowledge.")
        return dataclasses.replace(self.judged, reasons=tuple(reasons), inference_sees=sees)

    def _judge_observer(self, attack: InferenceAttack, exposure: Exposure) -> tuple[list[str], Sight]:
        """The reasons that forbid a privacy attack by the configured observer, and what the observer sees."""
        wants, total = self.config.observer, self.clients.total
        malicious = wants.server == "malicious"
        if not self.lookers:
            return judge_inference(attack, exposure, malicious, self.masking, self.trusted_server)
        shown = self.architecture.eavesdropper_sight(self.lookers, total)
        if shown == Sight.NOTHING:
            return [
                f"observer.seat: {wants.seat} are nodes that hear others, and {self.architecture.name} has none. Set "
                "observer.seat: server, or use d_psgd or all_reduce."
            ], Sight.NOTHING
        if self.lookers >= total:
            return [
                f"observer.nodes: {self.lookers} of {total} nodes look, and nobody is left. Lower it."
            ], Sight.NOTHING
        if attack.active or malicious:
            return [
                f"{attack.name} with observer.server: {wants.server} and observer.seat: {wants.seat}: nodes that look hand out "
                "no model to others. Use another attack with observer.server: curious, or observer.seat: server."
            ], Sight.NOTHING
        return judge_inference(attack, Exposure(shown, Sight.NOTHING), malicious, self.masking)

    @property
    def trusted_server(self) -> bool:
        """Whether the server adds the noise, so that an observer sees only what the server publishes."""
        return self.noise.added_by == "server"

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """JSON with every default spelled out, from which the cell can be built again.

        Without an attack the threat model has no effect, so its settings are left at their defaults. The exception is the
        number of malicious clients if they hold copies of honest clients' examples.
        """
        # Tuples become lists, so that the hash is over the same JSON that a record stores
        return dict(as_stored(json.loads(json.dumps(self.content()))))

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of SHA-256 over the canonical form and `RESULTS_VERSION`."""
        content = self.canonical
        if self.training.first_model:  # another path to the same file is the same cell
            digest = self.training.first_model.rpartition(MARK)[2]
            content = content | {"training": content["training"] | {"first_model": digest}}
        # Sorted and compact, so that the hash depends on neither the order of keys nor spacing
        text = json.dumps([RESULTS_VERSION, content], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """``alie(z=1.5) against nnm >> trimmed_mean``."""
        return f"{self.named or 'no attack'} against {self.defense}"

    @property
    def defended(self) -> bool:
        """Whether the defense differs from the undefended pipeline, or the protocol itself defends."""
        return self.defense != self.undefended or self._protocol_defends

    @property
    def _protocol_defends(self) -> bool:
        """Whether the protocol has measures against malicious clients."""
        return self.masking != self.masking.undefended or self.protocol.norm_bound is not None

    def control(self, *, attacked: bool, defended: bool) -> PlannedCell:
        """One of the four controls: with or without the attack, with the defense or the plain mean."""
        pipeline = self.pipeline if defended else self.known.pipeline("mean")
        masking = self.masking if defended else self.masking.undefended
        changed: dict[str, Any] = {} if attacked else {"attack": "none"}
        if not defended:
            protocol = dataclasses.replace(self.protocol, secure_aggregation=masking.setting, norm_bound=None)
            changed |= {"defense": self.undefended, "protocol": protocol}
        return self.with_parts(
            config=self.config.model_copy(update=changed),
            masking=masking,
            attack=self.attack if attacked else None,
            ensemble=self.ensemble if attacked else None,
            inference=self.inference if attacked else None,
            pipeline=pipeline,
        )

    @property
    def silenced(self) -> PlannedCell:
        """The silent control: the same cell, but malicious clients send nothing when they would act.

        Only their data are missing then. The attack is the fault `dropout`, so that cells with different attacks share one
        control. The rule assumes the usual share of the updates that arrive. If it cannot run with that f, it assumes the
        largest f with which it can; this favors nobody, since no row is malicious. If the pipeline is the mean, group means
        become one mean, because groups of the remaining clients may be too small.
        """
        clients = self.clients
        # A round is expected to hold the malicious clients' share of the federation
        away = round(self.malicious * self.clients.expected / self.clients.total)
        left = max(self.clients.expected - away, 1)
        for assumed_f in range(self.assumed_f, -1, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self._rows(left), self._count_assumed_rows(assumed_f, left))
                if assumed_f < self.assumed_f:
                    clients = dataclasses.replace(clients, assumed_f=assumed_f)
                break
        masking = self.masking.of_larger_sums if str(self.pipeline) == "mean" else self.masking
        protocol = dataclasses.replace(self.protocol, secure_aggregation=masking.setting)
        threat = dataclasses.replace(self.config.threat, knowledge=("own_data",))
        changes = {"clients": clients, "protocol": protocol, "threat": threat, "attack": "dropout"}
        attack: PoisonAttack = self.known.build("attack", "dropout")
        config = self.config.model_copy(update=changes)
        return self.with_parts(config=config, masking=masking, attack=attack, ensemble=None, inference=None)

    @property
    def compared_with(self) -> dict[str, PlannedCell]:
        """The control cells of a record, by the names under which the record stores their final accuracies."""
        cells = {
            "clean_mean": self.control(attacked=False, defended=False),
            "clean_defense": self.control(attacked=False, defended=True),
        }
        if self.adversary is not None:
            attack_mean = self.control(attacked=True, defended=False)
            if self.silences:
                cells |= {"silent_mean": attack_mean.silenced, "silent_defense": self.silenced}
            cells["attack_mean"] = attack_mean
        return cells


def _rule(config: CellConfig) -> Spec | list[Spec]:
    """The spec of the pipeline; the mean takes the place of an app's own strategy, of which nothing is known."""
    return "mean" if config.defense == OWN else config.defense


def _availability(config: CellConfig, known: Registry, where: str) -> Availability:
    """The law that the simulated network names."""
    spec, total = config.network and config.network.availability, config.clients.total
    found: Availability = known.build("availability", spec or "always", where)
    try:
        found.check(total)
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None
    if config.network is not None:
        config.network.check(total)
    return found


def _evasion(config: CellConfig, known: Registry, where: str) -> EvasionAttack | None:
    """The attack at test time, if the suite has one."""
    spec = config.evaluation.evasion
    if spec is None:
        return None
    found: EvasionAttack = known.build("evasion", spec, where)
    return found


def _fates(config: CellConfig, known: Registry, where: str) -> tuple[StatisticsFate, ...]:
    """The fates with which the model is evaluated as well."""
    return tuple(known.build("statistics", spec, where) for spec in config.evaluation.statistics)


def _attack(spec: Spec, known: Registry, where: str) -> PoisonAttack | Ensemble | InferenceAttack | None:
    """The value on the axis of attacks: an attack on the training or on the clients' privacy; None for ``none``."""
    name, _ = split_spec("attack", spec, where)
    if name == "none":
        return None
    kind = "inference" if name in known.names("inference") else "attack"
    if name not in known.names(kind):
        raise UnknownName("attack", name, [*known.names("attack"), *known.names("inference")], where)
    found: PoisonAttack | Ensemble | InferenceAttack = known.build(kind, spec, where)
    return found
