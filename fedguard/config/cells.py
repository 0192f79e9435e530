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

from fedguard.config.algorithms import build_training
from fedguard.config.app_section import OWN
from fedguard.config.protocol import check, masking
from fedguard.config.renaming import as_stored
from fedguard.config.schema import CellConfig
from fedguard.config.sections import Spec
from fedguard.contracts import (
    Architecture,
    Availability,
    Data,
    Ensemble,
    Environment,
    EvasionAttack,
    Exposure,
    Federation,
    InferenceAttack,
    Masking,
    Meeting,
    Model,
    Network,
    Noise,
    Participation,
    Partition,
    Pipeline,
    PoisonAttack,
    Protocol,
    Sight,
    ThreatModel,
    Training,
)
from fedguard.contracts.specs import split_spec
from fedguard.errors import ConfigError, PreconditionError, UnknownName
from fedguard.registry import Registry
from fedguard.visibility import Admissibility, derive_exposure, judge, judge_inference

#: Part of every cell's identity. A change that alters results raises it, so that older records are not reused.
RESULTS_VERSION = 5


@dataclass(frozen=True)
class Cell(ABC):
    """One combination of task, partition, architecture, protocol, attack and defense, without a seed.

    What it evaluates is a training that FedGuard composes, or an existing app: a subclass for each
    (`fedguard.config.layout.build_cell`), whose trials `fedguard.bench.running.procedures` runs.

    Attributes:
        undefended: the defense with which others are compared.
        silences: whether malicious clients can be made to send nothing, which separates lost data from harm.
    """

    undefended: ClassVar[str]
    silences: ClassVar[bool]

    config: CellConfig
    data: Data | Environment
    model: Model
    partition: Partition
    architecture: Architecture
    attack: PoisonAttack | None
    pipeline: Pipeline
    training: Training
    protocol: Protocol
    known: Registry = dataclasses.field(repr=False, compare=False)
    ensemble: Ensemble | None = None
    inference: InferenceAttack | None = None
    network: Network | None = None
    evasion: EvasionAttack | None = None

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
        noise = known.build("noise", config.protocol.privacy, places.get("protocol.privacy", "protocol.privacy"))
        at = places.get("protocol.secure_aggregation", "protocol.secure_aggregation")
        mode = masking(config.protocol.secure_aggregation, known, at)
        protocol = config.protocol.protocol(mode, noise)
        training = build_training(config.training, known, places)
        federation = Federation(protocol=protocol, clients=config.clients, training=training)
        check(federation, places.get("protocol", "protocol"))
        return cls(
            config,
            known.build("data", task.data, places.get("task.data", "task.data")),
            known.build("model", task.model, places.get("task.model", "task.model")),
            known.build("partition", task.partition, places.get("task.partition", "task.partition")),
            known.build("architecture", config.architecture, places.get("architecture", "architecture")),
            named if isinstance(named, PoisonAttack) else None,
            known.pipeline(_rule(config), places.get("defense", "defense")),
            training,
            protocol,
            known,
            named if isinstance(named, Ensemble) else None,
            named if isinstance(named, InferenceAttack) else None,
            _network(config, known, places.get("network.availability", "network.availability")),
            _evasion(config, known, places.get("evaluation.evasion", "evaluation.evasion")),
        )

    @abstractmethod
    def reasons(self, rule_sees: Sight) -> Iterator[str]:
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
    def adversary(self) -> PoisonAttack | Ensemble | None:
        """The adversary of the training: a single attack, or the ensemble of which the worst counts."""
        return self.attack or self.ensemble

    @property
    def named(self) -> PoisonAttack | Ensemble | InferenceAttack | None:
        """The attack that the suite names, on the training or on the clients' privacy."""
        return self.adversary or self.inference

    @cached_property
    def members(self) -> tuple[Cell, ...]:
        """The cells of an ensemble: the same cell under each of its admissible attacks, without duplicates."""
        specs = self.ensemble.members() if self.ensemble else ()
        cells = [self.build(self.config.model_copy(update={"attack": spec}), self.known) for spec in specs]
        return tuple({cell.id: cell for cell in cells if not cell.verdict.reasons}.values())

    @cached_property
    def malicious(self) -> int:
        """Number of malicious clients in the federation."""
        return self.config.clients.count(self.config.clients.malicious)

    @property
    def copying(self) -> bool:
        """Whether the malicious clients hold copies of honest clients' examples instead of examples of their own."""
        return self.config.task.partition_among == "honest" and self.malicious > 0

    @cached_property
    def told(self) -> int:
        """Number of malicious clients in the federation that the server assumes."""
        assumed = self.config.clients.assumed_f
        if assumed == "unknown":
            return self._most_told
        return self.malicious if assumed is None else self.config.clients.count(assumed)

    @property
    def _most_told(self) -> int:
        """The largest minority of all clients that the pipeline can assume and still run."""
        # Below half: a rule cannot tell a malicious majority from an honest one
        for told in range((self.config.clients.total - 1) // 2, 0, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self.rows, self._count_assumed_rows(told))
                return told
        return 0

    @cached_property
    def participation(self) -> Participation:
        return self.config.clients

    @property
    def meeting(self) -> Meeting | None:
        """How updates meet in simulated time; None if the selection of each round decides it."""
        return self.architecture.meeting(self.participation, self.training.rounds)

    @property
    def noise(self) -> Noise:
        return self.protocol.privacy

    @property
    def mode(self) -> Masking:
        """The secure aggregation mode, which decides what the server sees of a round."""
        return self.protocol.secure_aggregation

    @property
    def federation(self) -> Federation:
        """The federation without malicious clients: if the cell may run, with the sessions that the architecture forms."""
        whole = Federation(
            protocol=self.protocol, clients=self.participation, training=self.training, meeting=self.meeting
        )
        return whole if self.verdict.reasons else self.architecture.sessions(whole)

    @property
    def rows(self) -> int:
        """Number of rows that the aggregation rule gets in a round: single updates, or the sums that the protocol reveals."""
        return self._rows(self.architecture.updates(self.participation))

    def _rows(self, updates: int) -> int:
        return self.mode.rows(self.architecture.rows(updates))

    @property
    def told_rows(self) -> int:
        """Number of these rows that the rule assumes to be malicious."""
        return self._count_assumed_rows(self.told)

    def _count_assumed_rows(self, told: int, clients: int | None = None) -> int:
        clients = self.architecture.updates(self.participation) if clients is None else clients
        # Rounded up, so that no part of a malicious client is assumed away; there cannot be more malicious rows than rows
        return min(-(-told * clients // self.participation.total), self._rows(clients))

    @property
    def threat(self) -> ThreatModel:
        threat = self.config.threat
        known = tuple(name for name in threat.knowledge if name != "defense" or not self.own)
        return dataclasses.replace(threat, knowledge=known)

    @cached_property
    def verdict(self) -> Admissibility:
        """Whether the cell may run, and what its rule and its attack see."""
        exposure = derive_exposure(self.architecture.exposes, self.mode, self.config.server.root_data > 0)
        more = self.architecture.more_rows
        verdict = judge(self.pipeline, self.attack, exposure, self.threat, self.rows, self.told_rows, self.mode, more)
        reasons = list(verdict.reasons)
        sees = Sight.NOTHING
        if self.inference is not None:
            of_inference, sees = self._judge_observer(self.inference, exposure)
            reasons += of_inference
        reasons += self.reasons(verdict.rule_sees)
        if self.adversary is not None and self.malicious == 0:
            reasons.append(f"{self.adversary.name} has no client to act through. Set clients.malicious.")
        if self.ensemble is not None and not reasons and not self.members:
            reasons.append(f"none of the attacks of {self.ensemble.name} may run here. Grant more in threat.knowledge.")
        return dataclasses.replace(verdict, reasons=tuple(reasons), inference_sees=sees)

    def _judge_observer(self, attack: InferenceAttack, exposure: Exposure) -> tuple[list[str], Sight]:
        """The reasons that forbid a privacy attack by the configured observer, and what the observer sees."""
        wants, total = self.config.observer, self.participation.total
        malicious = wants.server == "malicious"
        if not self.lookers:
            return judge_inference(attack, exposure, malicious, self.mode, self.trusted_server)
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
        return judge_inference(attack, Exposure(shown, Sight.NOTHING), malicious, self.mode)

    @property
    def lookers(self) -> int:
        """Number of nodes that observe a training without a server; 0 if a server observes, or nobody."""
        wants = self.config.observer
        return wants.nodes if self.inference is not None and wants.seat != "server" else 0

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
        # Sorted and compact, so that the hash depends on neither the order of keys nor spacing
        text = json.dumps([RESULTS_VERSION, self.canonical], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """``alie(z=1.5) against nnm >> trimmed_mean``."""
        return f"{self.named or 'no attack'} against {self.defense}"

    @property
    def defended(self) -> bool:
        """Whether the defense differs from the undefended pipeline, or the protocol itself defends."""
        return self.defense != self.undefended or self.protocol != self.protocol.undefended

    def control(self, *, attacked: bool, defended: bool) -> Cell:
        """One of the four controls: with or without the attack, with the defense or the plain mean."""
        pipeline = self.pipeline if defended else self.known.pipeline("mean")
        protocol = self.protocol if defended else self.protocol.undefended
        changed: dict[str, Any] = {} if attacked else {"attack": "none"}
        if not defended:
            changed |= {"defense": self.undefended, "protocol": self.config.protocol.under(protocol)}
        return dataclasses.replace(
            self,
            config=self.config.model_copy(update=changed),
            protocol=protocol,
            attack=self.attack if attacked else None,
            ensemble=self.ensemble if attacked else None,
            inference=self.inference if attacked else None,
            pipeline=pipeline,
        )

    @property
    def silenced(self) -> Cell:
        """The silent control: the same cell, but malicious clients send nothing when they would act.

        Only their data are missing then. The attack is the fault `dropout`, so that cells with different attacks share one
        control. The rule assumes the usual share of the updates that arrive. If it cannot run with that f, it assumes the
        largest f with which it can; this favors nobody, since no row is malicious. If the pipeline is the mean, group means
        become one mean, because groups of the remaining clients may be too small.
        """
        clients = self.config.clients
        # A round is expected to hold the malicious clients' share of the federation
        away = round(self.malicious * self.participation.expected / self.participation.total)
        left = max(self.participation.expected - away, 1)
        for told in range(self.told, -1, -1):
            with contextlib.suppress(PreconditionError):
                self.pipeline.check(self._rows(left), self._count_assumed_rows(told, left))
                if told < self.told:
                    clients = dataclasses.replace(clients, assumed_f=told)
                break
        mode = self.mode.of_larger_sums if str(self.pipeline) == "mean" else self.mode
        protocol = dataclasses.replace(self.protocol, secure_aggregation=mode)
        threat = dataclasses.replace(self.config.threat, knowledge=("own_data",))
        section = self.config.protocol.under(protocol)
        changes = {"clients": clients, "protocol": section, "threat": threat, "attack": "dropout"}
        attack: PoisonAttack = self.known.build("attack", "dropout")
        config = self.config.model_copy(update=changes)
        return dataclasses.replace(self, config=config, protocol=protocol, attack=attack, ensemble=None, inference=None)

    @property
    def compared_with(self) -> dict[str, Cell]:
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


def _network(config: CellConfig, known: Registry, where: str) -> Network | None:
    """The simulated network, if the suite has one."""
    if config.network is None:
        return None
    there: Availability = known.build("availability", config.network.availability or "always", where)
    try:
        there.check(config.clients.total)
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None
    found = config.network.network(there)
    found.check(config.clients.total)
    return found


def _evasion(config: CellConfig, known: Registry, where: str) -> EvasionAttack | None:
    """The attack at test time, if the suite has one."""
    spec = config.evaluation.evasion
    if spec is None:
        return None
    found: EvasionAttack = known.build("evasion", spec, where)
    return found


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
