"""A training that FedGuard composes of named algorithms: validation and identity of its cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedguard.adapters.model import form_of
from fedguard.config.algorithms import settings
from fedguard.config.cells import PlannedCell
from fedguard.config.protocol import effective
from fedguard.config.sections import Subset
from fedguard.contracts import Environment, Sight, first_met
from fedguard.contracts.channels import SAMPLES
from fedguard.contracts.participation import MOST_SITES


@dataclass(frozen=True)
class ComposedCell(PlannedCell):
    """Task, partition, architecture and protocol, each by an algorithm that the suite names."""

    undefended = "mean"
    silences = True

    def reasons(self) -> Iterator[str]:
        """Why noise, rule or algorithm is incompatible with the others or with the rest of the cell."""
        if self.training.dtype != "float32" and isinstance(self.data, Environment):
            yield (
                f"training.dtype: {self.training.dtype} is for tasks with examples; what actors see and are rewarded with in "
                f"{self.data.name} is float32. Leave dtype out."
            )
        if isinstance(self.data, Environment) and self.config.task.subset != Subset():
            yield f"task.subset draws examples, and {self.data.name} has none. Leave it out."
        if self.pipeline.rule.by_noise and not self.noise.differs:
            yield (
                f"{self.pipeline.rule.name} weighs the clients by the noise of their privacy levels, and there are none. Set "
                "protocol.privacy: {name: record, levels: [...]}, or use mean."
            )
        lies = self.attack is not None and SAMPLES in self.attack.lies
        if self.attack is not None and lies and self.masking.masked and self.pipeline.rule.by_samples:
            yield (
                f"{self.attack.name} lies to the server about its examples, and under masks each client weighs its own update. "
                "Use model_replacement, which boosts the update itself."
            )
        if self.inference is not None and self.shared:
            yield (
                f"what {self.inference.name} finds may be public, since each client holds task.shared of the examples, which "
                "are nobody's secret. Set shared: 0."
            )
        assumed = [one.name for one in self.pipeline.transforms if one.by_cross_entropy]
        if not self.model.by_cross_entropy and (assumed or self.inference is not None):
            named = " and ".join([*assumed, *([self.inference.name] if self.inference else [])])
            yield f"{named} works out gradients of cross-entropy, and {self.model.name} has another loss. Use softmax or mlp."
        yield from _check_evaluation_time(self)
        yield from _check_weight_breakdown(self)
        yield from _unheard_lies(self)
        yield from self.noise.reasons(self)
        if self.meeting is not None and self.noise.unit and not self.noise.in_time:
            yield (
                f"{self.noise.name} does not count each client's releases, which under {self.architecture.name} follow from "
                "speeds. Set in_time = True in its class once spent counts by fedguard.privacy.ledger; or use server."
            )
        if self.clients.schedule and (self.masking.masked or self.private):
            yield (
                "clients.schedule changes how many clients there are, and secure aggregation and noise are planned for all of "
                "them. Leave out one of the two."
            )
        if self.clients.most_trainings is not None and not self.architecture.counts_trainings(self.clients):
            yield (
                f"clients.most_trainings stops clients that go on by themselves, and under {self.architecture.name} rounds say "
                "who trains. Leave it out, lower training.rounds, or use fedbuff, fedasync or basgd."
            )
        if isinstance(self.data, Environment):
            yield from self.data.reasons(self)
        if self.algorithm.replays and not self.architecture.replays:
            yield (
                f"{self.algorithm.name} learns from a replay, which {self.architecture.name} does not have. Use "
                f"{self.algorithm.learner}, or training.algorithm: actor_critic."
            )
        if not self.algorithm.only_updates and Sight.ROOT_DATA in self.rule_sees | self.masking.needs[0]:
            yield (
                f"the server trains on its root data as fedavg does, and {self.algorithm.name} sends another kind of update. "
                "Use fedavg."
            )
        yield from _adapter_reasons(self)
        yield from self.algorithm.reasons(self)
        yield from self.architecture.reasons(self)

    def content(self) -> dict[str, Any]:
        config = self.config
        threat = config.threat if self.adversary else type(config.threat)()
        content = {
            "task": {
                "data": self.data.spec(),
                "model": self.model.spec(),
                "partition": self.partition.spec(),
                "partition_seed": config.task.partition_seed,
                "partition_among": "honest" if self.copied else "all",
                # Left out at its default, so that cells of versions without it keep their identity
                **({"shared": config.task.shared} if config.task.shared else {}),
                **({"subset": subset} if (subset := config.task.subset.model_dump(exclude_none=True)) else {}),
            },
            "clients": self._clients(),
            "training": settings(self.algorithm, self.training),
            "protocol": effective(self),
            "threat": {key: value for key, value in dataclasses.asdict(threat).items() if value or key != "stays"},
            "server": config.server.model_dump(),
            "evaluation": self._evaluation(),
            "architecture": self.architecture.spec() if self.architecture.fields() else self.architecture.name,
            "attack": self.named.spec() if self.named else "none",
            "defense": self.pipeline.spec(),
        }
        if self.network is not None:
            content["network"] = self.network.spec(self.availability)
        if self.inference:
            content["observer"] = self.config.observer.spec()
        return content

    def _evaluation(self) -> dict[str, Any]:
        """The part of `content` that says when the model is evaluated, and with what."""
        evasion = {} if self.evasion is None else {"evasion": self.evasion.spec()}
        fates = [fate.spec() for fate in self.compared_fates]
        return self.config.evaluation.spec | evasion | ({"statistics": fates} if fates else {})

    def _clients(self) -> dict[str, Any]:
        """The part of `content` that says who takes part."""
        clients = self.clients
        content: dict[str, Any] = {
            "total": clients.total,
            "per_round": clients.expected,
            # If all clients take part, the kind of sampling has no effect and must not change the identity
            "sampling": clients.sampling if clients.expected < clients.total else "fixed",
            "malicious": self._who_is_malicious() if self.adversary or self.copied else 0,
            "assumed_f": "unknown" if clients.assumed_f == "unknown" else self.assumed_f,
        }
        if clients.schedule:
            content["schedule"] = [
                dataclasses.asdict(stay) | {"clients": clients.count(stay.clients)} for stay in clients.schedule
            ]
        if clients.most_trainings is not None:
            content["most_trainings"] = clients.most_trainings
        return content

    def _who_is_malicious(self) -> int | list[str]:
        """Their number, or their names where the suite gives them."""
        named = self.clients.malicious
        return list(named) if isinstance(named, tuple) else self.malicious


def _adapter_reasons(cell: ComposedCell) -> Iterator[str]:
    """Why the form of its adapters does not fit a cell."""
    form = form_of(cell.model)
    if form is not None:
        yield from form.reasons(cell, cell.architecture)
    if form is not None and isinstance(cell.data, Environment):
        yield "training.adapters is for tasks with examples; actors train their networks as they are. Leave it out."


def _check_evaluation_time(cell: PlannedCell) -> Iterator[str]:
    """Why simulated time cannot decide when the model is evaluated."""
    wanted, attack = cell.config.evaluation, cell.inference
    if wanted.in_time and cell.network is None:
        yield "evaluation.seconds and until are simulated seconds, and there is no simulated time. Set network: {}."
    if wanted.until is not None and attack is not None and attack.watches == "round":
        yield (
            f"{attack.name} watches one round, and nobody knows whether it ends by evaluation.until. Leave out until, and set "
            "training.rounds."
        )


def _check_weight_breakdown(cell: PlannedCell) -> Iterator[str]:
    """Why breakdown in weight cannot be measured for the rule of a cell."""
    if not cell.config.evaluation.weight_breakdown:
        return
    if cell.clients.total > MOST_SITES:
        yield (
            f"evaluation.weight_breakdown tries each set of clients, of which there are up to {MOST_SITES}; clients.total is "
            f"{cell.clients.total}. Leave it out."
        )
    sees_more = [stage.name for stage in cell.pipeline.stages if first_met(stage.needs, Sight.EACH_UPDATE) is None]
    if sees_more:
        yield (
            f"evaluation.weight_breakdown shows a rule updates alone, and {' and '.join(sees_more)} needs more. Leave it out, "
            "or use another defense."
        )


def _unheard_lies(cell: PlannedCell) -> Iterator[str]:
    """Why what an attack lies about has no effect here: nobody asks for it."""
    if cell.attack is None:
        return
    why = {}
    if not isinstance(cell.data, Environment):
        why["environment"] = f"in {cell.data.name} nobody acts"
    # One that is heard is enough: an attack may lie about more than this architecture asks for
    if cell.architecture.channels.isdisjoint(cell.attack.lies):
        why["architecture"] = f"{cell.architecture.name} does not go by that here"
    for channel in cell.attack.lies:
        if channel.listener in why:
            yield f"{cell.attack.name} lies about {channel.about}, and {why[channel.listener]}. Use {channel.where}."
