"""The threat card: the assumptions behind a result, recorded for every cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedguard.bench.running.protocol import DRAWN_FROM, NOISE_IS_SECRET, noise_drawn, protocol_card
from fedguard.config import PlannedCell
from fedguard.config.sections import Subset
from fedguard.contracts import PUBLIC, Defense, InferenceAttack, PoisonAttack, Sight, ThreatModel
from fedguard.visibility import derive_exposure


def _sampling(cell: PlannedCell) -> str:
    return cell.clients.sampling if cell.clients.expected < cell.clients.total else "all"


def _stages(cell: PlannedCell) -> Sequence[Defense]:
    """The stages of the defense; none of an app's own, of which nothing is known."""
    return () if cell.own else cell.pipeline.stages


def _server_shown(cell: PlannedCell) -> list[str]:
    return derive_exposure(cell.architecture.exposes, cell.masking, cell.config.server.root_data > 0).server.names()


def _root_data(cell: PlannedCell) -> dict[str, int] | None:
    root = cell.config.server.root_data
    return {"examples": root, "overlap_with_test": 0, "overlap_with_clients": 0} if root else None


def threat_in_words(cell: PlannedCell) -> str:
    """Who attacks, and what they see."""
    if cell.inference is None and cell.config.app is not None:
        who = f"{cell.malicious} of {cell.clients.total} {cell.config.app.nodes_in_words} collude"
        return f"{who}; together they see {cell.threat.grants.words()}." if cell.adversary else "Nobody is malicious."
    if cell.inference is None:
        public = f" Everybody has {cell.config.task.shared:.3g} of the examples." if cell.config.task.shared else ""
        subset = describe_subset(cell.config.task.subset)
        others = f" {cell.architecture.shows_others}" if cell.architecture.shows_others else ""
        seen = (cell.threat.grants | PUBLIC) & derive_exposure(cell.architecture.exposes, cell.masking).clients
        named = cell.clients.malicious
        attacking = named if isinstance(named, tuple) else cell.malicious
        attackers = describe_threat(cell.threat, attacking, cell.clients.total, seen)
        return (
            (attackers if cell.adversary else "Nobody is malicious.")
            + public
            + others
            + (f" {subset}" if subset else "")
        )
    return observer_in_words(cell, cell.inference)


def describe_subset(subset: Subset) -> str:
    """``Each trial draws 6000 train examples and 1000 test examples of the data.``; '' if it takes all."""
    drawn = [f"{size} {part} examples" for part, size in subset if size is not None]
    return f"Each trial draws {' and '.join(drawn)} of the data." if drawn else ""


def describe_threat(threat: ThreatModel, malicious: int | Sequence[str], clients: int, sees: Sight) -> str:
    """A threat model in words, for ``malicious`` of ``clients`` clients that see this much of what it grants.

    Args:
        malicious: how many, or their names.
    """
    if isinstance(malicious, int):
        who = f"{malicious} of {clients} clients are"
    else:
        who = f"{' and '.join(malicious)} of {clients} {'is' if len(malicious) == 1 else 'are'}"
    until = "the end" if threat.last_round is None else f"round {threat.last_round}"
    rounds = "" if threat.every == 1 else f", in every {threat.every}th round"
    stay = " Their devices never drop out." if threat.stays else ""
    return (
        f"{who} malicious from round {threat.first_round} to {until}{rounds}; together they see {sees.words()}.{stay}"
    )


def observer_in_words(cell: PlannedCell, attack: InferenceAttack) -> str:
    """Who infers the clients' data, and from what."""
    wants = cell.config.observer
    told = ", and is told the labels" if wants.labels else ""
    rounds = {"round": f"round {wants.round}", "training": "every round", "model": ""}[attack.watches]
    if cell.lookers:
        where = {"nodes": "", "side_by_side": " side by side", "around": " around a drawn one"}[wants.seat]
        who = "A curious node" if cell.lookers == 1 else f"{cell.lookers} curious nodes{where} that pool what they hear"
        infers, watch = ("s", "es") if cell.lookers == 1 else ("", "")
        watched = f"watch{watch} {rounds}" if rounds else f"take{infers} the final model of one's own"
        least = (
            ", as far as it can be solved for" if cell.verdict.inference_sees & (Sight.EACH_UPDATE | Sight.SUM) else ""
        )
        return f"{who} {watched}, and infer{infers} the others' data from {cell.verdict.inference_sees.words()}{least}{told}."
    who = "Whoever reads the published models" if cell.trusted_server else f"A {wants.server} server"
    watched = f"watches {rounds}" if rounds else "takes the final model"
    return f"{who} {watched}, and infers the clients' data; it sees {cell.verdict.inference_sees.words()}{told}."


def _attacker_data(cell: PlannedCell) -> str:
    if cell.config.app is not None:
        return "the malicious nodes' own"
    if cell.copied:
        return "copies of honest clients' shares of the partition, which is among the honest alone"
    return "the malicious clients' own share of the partition" + (
        " and what is public" if cell.config.task.shared else ""
    )


def acts_on(attack: PoisonAttack) -> list[str]:
    """What an attack tampers with: where it overrides an honest method, and on which channels it lies."""
    methods = {"poison": "data", "silent": "participation", "plan": "local training", "craft": "update"}
    own = [what for method, what in methods.items() if attack.overrides(method)]
    return list(dict.fromkeys([*own, *(channel.card for channel in attack.lies)]))


class Row(NamedTuple):
    """One field of the threat card: its value for a training that FedGuard composes, and for an app, given the cell.

    The second argument says whether noise for privacy comes from the operating system. `ABSENT` leaves the field out.
    """

    composed: Callable[[PlannedCell, bool], Any]
    app: Callable[[PlannedCell, bool], Any]


ABSENT = object()


def same(value: Callable[[PlannedCell], Any]) -> Row:
    """A field that apps have, too."""
    return Row(lambda cell, secret: value(cell), lambda cell, secret: value(cell))


def either(composed: Callable[[PlannedCell], Any], app: Any) -> Row:
    """A field that is settled for apps, of which FedGuard knows no more."""
    return Row(lambda cell, secret: composed(cell), lambda cell, secret: app)


def of_source(composed: Callable[[bool], Any], app: Any) -> Row:
    """A field that depends on the source of the noise for privacy; ``app`` also holds where no noise is drawn."""
    return Row(lambda cell, secret: composed(secret) if noise_drawn(cell) else app, lambda cell, secret: app)


#: The threat card, field by field; `fedguard.bench.records.schema.card` says what each means
CARD: dict[str, Row] = {
    "in_words": same(threat_in_words),
    "attack": same(lambda cell: str(cell.named) if cell.named else None),
    "goal": same(lambda cell: cell.named.goal if isinstance(cell.named, PoisonAttack | InferenceAttack) else None),
    "acts_on": same(lambda cell: acts_on(cell.adversary) if isinstance(cell.adversary, PoisonAttack) else []),
    "attack_sees": same(lambda cell: (cell.attack_sees | cell.verdict.inference_sees).names()),
    "observer": same(lambda cell: cell.config.observer.spec() if cell.inference else None),
    "granted": same(lambda cell: cell.threat.grants.names() if cell.adversary else []),
    "collusion": same(lambda cell: cell.adversary is not None and cell.malicious > 1),
    "attacker_data": same(lambda cell: _attacker_data(cell) if cell.adversary else None),
    "first_round": same(lambda cell: cell.threat.first_round if cell.adversary else None),
    "last_round": same(lambda cell: cell.threat.last_round if cell.adversary else None),
    "every": same(lambda cell: cell.threat.every if cell.adversary else None),
    "clients": same(lambda cell: cell.clients.total),
    "per_round": same(lambda cell: cell.clients.expected),
    "sampling": either(_sampling, "the app's"),
    "malicious": same(lambda cell: cell.malicious if cell.adversary else 0),
    "assumed_f": same(lambda cell: cell.assumed_f),
    "f_known": either(lambda cell: cell.clients.assumed_f != "unknown", True),
    "rows": same(lambda cell: cell.rows),
    "assumed_f_per_round": same(lambda cell: cell.assumed_rows),
    "defense": same(lambda cell: cell.defense),
    "rule_needs": same(lambda cell: {one.name: [way.names() for way in one.needs] for one in _stages(cell)}),
    "server_sees": same(lambda cell: [] if cell.own else cell.rule_sees.names()),
    "server_shown": either(_server_shown, (Sight.EACH_UPDATE | Sight.MODEL).names()),
    "unproven": same(lambda cell: [] if cell.own else cell.pipeline.unproven(cell.rows, cell.assumed_rows)),
    "root_data": same(_root_data),
    "preparation": either(
        lambda cell: {key: getattr(cell.data.preparation, key) for key in ("origin", "what")}, ABSENT
    ),
    "partition": either(lambda cell: str(cell.partition), "the app's"),
    "shared": same(lambda cell: cell.config.task.shared or ABSENT),
    "subset": same(lambda cell: cell.config.task.subset.model_dump(exclude_none=True) or ABSENT),
    "architecture": Row(
        lambda cell, secret: str(cell.architecture) if cell.architecture.in_time else ABSENT,
        lambda cell, secret: cell.config.app.framework if cell.config.app else ABSENT,
    ),
    "algorithm": either(lambda cell: cell.algorithm.name, "the app's"),
    "secure_aggregation": same(lambda cell: cell.masking.name),
    "protocol": Row(protocol_card, lambda cell, secret: None),
    "privacy": same(lambda cell: cell.noise.name),
    "noise": same(lambda cell: cell.noise.added_by),
    "epsilon": same(lambda cell: None),
    "epsilon_note": either(
        lambda cell: cell.noise.note(cell.masking.masked),
        "what the app does for privacy is not looked at, and no guarantee is stated",
    ),
    "noise_note": of_source(NOISE_IS_SECRET.__getitem__, None),
    "noise_from": of_source(DRAWN_FROM.__getitem__, None),
    "reproducible": of_source(lambda secret: not secret, True),
}


def threat_card(cell: PlannedCell, *, secret_noise: bool = False) -> dict[str, Any]:
    """The threat card of a cell before it runs; the record adds the measured dissimilarity and malicious share.

    Args:
        secret_noise: whether noise for privacy comes from the operating system.
    """
    kind = "composed" if cell.config.app is None else "app"
    values = {name: getattr(row, kind)(cell, secret_noise) for name, row in CARD.items()}
    return {name: value for name, value in values.items() if value is not ABSENT}
