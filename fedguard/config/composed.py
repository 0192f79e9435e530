"""A training that FedGuard composes of named algorithms: validation and identity of its cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedguard.config.algorithms import settings
from fedguard.config.protocol import effective
from fedguard.config.targets import OWN, Target
from fedguard.contracts import Combination, Environment, Sight
from fedguard.contracts.channels import SAMPLES

if TYPE_CHECKING:
    from fedguard.config.cells import Cell
    from fedguard.config.schema import CellConfig


class ComposedTarget(Target):
    """Task, partition, architecture and protocol, each by an algorithm that the suite names."""

    undefended = "mean"
    silences = True

    def check(self, config: CellConfig) -> None:
        if config.defense == OWN:
            raise ValueError("defense: own is the strategy of an app; expected an app beside it, or another defense")

    def reasons(self, cell: Cell, rule_sees: Sight) -> Iterator[str]:
        """Why noise, rule or algorithm is incompatible with the others or with the rest of the cell."""
        combined = Combination(
            protocol=cell.protocol,
            clients=cell.participation,
            training=cell.training,
            pipeline=cell.pipeline,
            model=cell.model,
            data=cell.data,
            copied=cell.copying,
            shared=cell.config.task.shared,
            rule_sees=rule_sees,
            adversary=cell.adversary,
            inference=cell.inference,
            network=cell.network,
            meeting=cell.meeting,
            evasion=cell.evasion,
            told=cell.told,
            attackers=cell.malicious if cell.adversary else 0,
            lookers=cell.lookers,
            watched_round=cell.config.observer.round,
        )
        if cell.pipeline.rule.by_noise and not cell.noise.differs:
            yield (
                f"{cell.pipeline.rule.name} weighs the clients by the noise of their privacy levels, and there are none. Set "
                "protocol.privacy: {kind: record, levels: [...]}, or use mean."
            )
        if (
            cell.attack is not None
            and SAMPLES in cell.attack.lies
            and cell.protocol.masked
            and cell.pipeline.rule.by_samples
        ):
            yield (
                f"{cell.attack.name} lies to the server about its examples, and under masks each client weighs its own update. "
                "Use model_replacement, which boosts the update itself."
            )
        if cell.inference is not None and combined.shared:
            yield (
                f"what {cell.inference.name} finds may be public, since each client holds task.shared of the examples, which "
                "are nobody's secret. Set shared: 0."
            )
        assumed = [one.name for one in cell.pipeline.transforms if one.by_cross_entropy]
        if not cell.model.by_cross_entropy and (assumed or cell.inference is not None):
            named = " and ".join([*assumed, *([cell.inference.name] if cell.inference else [])])
            yield f"{named} works out gradients of cross-entropy, and {cell.model.name} has another loss. Use softmax or mlp."
        yield from _check_evaluation_time(cell)
        yield from _unheard_lies(cell)
        yield from cell.noise.reasons(combined)
        if combined.meeting is not None and cell.noise.unit and not cell.noise.in_time:
            yield (
                f"{cell.noise.name} does not count each client's releases, which under {cell.architecture.name} follow from "
                "speeds. Set in_time = True in its class once spent counts by fedguard.privacy.ledger; or use server."
            )
        if combined.clients.schedule and (combined.protocol.masked or combined.protocol.private):
            yield (
                "clients.schedule changes how many clients there are, and secure aggregation and noise are planned for all of "
                "them. Leave out one of the two."
            )
        if combined.clients.most_trainings is not None and not cell.architecture.counts_trainings(combined.clients):
            yield (
                f"clients.most_trainings stops clients that go on by themselves, and under {cell.architecture.name} rounds say "
                "who trains. Leave it out, lower training.rounds, or use fedbuff, fedasync or basgd."
            )
        if isinstance(cell.data, Environment):
            yield from cell.data.reasons(combined)
        if cell.training.algorithm.replays and not cell.architecture.replays:
            yield (
                f"{cell.training.algorithm.name} learns from a replay, which {cell.architecture.name} does not have. Use "
                f"{cell.training.algorithm.learner}, or training.algorithm: actor_critic."
            )
        yield from cell.training.algorithm.reasons(combined)
        yield from cell.architecture.reasons(combined)

    def canonical(self, cell: Cell) -> dict[str, Any]:
        config = cell.config
        clients: dict[str, Any] = {
            "total": config.clients.total,
            "per_round": cell.participation.expected,
            # If all clients take part, the kind of sampling has no effect and must not change the identity
            "sampling": config.clients.sampling if cell.participation.expected < config.clients.total else "fixed",
            "malicious": cell.malicious if cell.adversary or cell.copying else 0,
            "assumed_f": "unknown" if config.clients.assumed_f == "unknown" else cell.told,
        }
        if cell.participation.schedule:
            clients["schedule"] = [dataclasses.asdict(stay) for stay in cell.participation.schedule]
        if cell.participation.most_trainings is not None:
            clients["most_trainings"] = cell.participation.most_trainings
        threat = config.threat if cell.adversary else type(config.threat)()
        content = {
            "task": {
                "data": cell.data.spec(),
                "model": cell.model.spec(),
                "partition": cell.partition.spec(),
                "partition_seed": config.task.partition_seed,
                "partition_among": "honest" if cell.copying else "all",
                # Left out at its default, so that cells of versions without it keep their identity
                **({"shared": config.task.shared} if config.task.shared else {}),
            },
            "clients": clients,
            "training": settings(cell.training),
            "protocol": effective(cell.protocol),
            "threat": threat.model_dump(mode="json", exclude=None if threat.stays else {"stays"}),
            "server": config.server.model_dump(),
            "evaluation": config.evaluation.spec | ({} if cell.evasion is None else {"evasion": cell.evasion.spec()}),
            "architecture": cell.architecture.spec() if cell.architecture.fields() else cell.architecture.name,
            "attack": cell.named.spec() if cell.named else "none",
            "defense": cell.pipeline.spec(),
        }
        if cell.network is not None:
            there = cell.network.there
            named = there.spec() if there.fields() else there.name
            content["network"] = cell.network.spec(named)
        if cell.inference:
            content["observer"] = cell.config.observer.spec()
        return content


def _check_evaluation_time(cell: Cell) -> Iterator[str]:
    """Why simulated time cannot decide when the model is evaluated."""
    wanted, attack = cell.config.evaluation, cell.inference
    if wanted.in_time and cell.network is None:
        yield "evaluation.seconds and until are simulated seconds, and there is no simulated time. Set network: {}."
    if wanted.until is not None and attack is not None and attack.watches == "round":
        yield (
            f"{attack.name} watches one round, and nobody knows whether it ends by evaluation.until. Leave out until, and set "
            "training.rounds."
        )


def _unheard_lies(cell: Cell) -> Iterator[str]:
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
