"""The threat card: the assumptions behind a result, recorded for every cell."""

from __future__ import annotations

from typing import Any

from fedguard.bench.running.protocol import DRAWN_FROM, NOISE_IS_SECRET, noise_drawn, protocol_card
from fedguard.config import Cell
from fedguard.contracts import InferenceAttack, PoisonAttack, Sight
from fedguard.visibility import derive_exposure


def threat_card(cell: Cell, *, secret_noise: bool = False) -> dict[str, Any]:
    """The threat card of a cell before it runs; the record adds the measured dissimilarity and malicious share.

    Args:
        secret_noise: whether noise for privacy comes from the operating system.
    """
    config, threat, attack = cell.config, cell.threat, cell.adversary
    sampled = cell.participation
    root = config.server.root_data
    shown = derive_exposure(cell.architecture.exposes, cell.mode, root > 0).server
    return {
        "in_words": threat_in_words(cell),
        "attack": str(cell.named) if cell.named else None,
        "goal": cell.named.goal if isinstance(cell.named, PoisonAttack | InferenceAttack) else None,
        "acts_on": acts_on(attack) if isinstance(attack, PoisonAttack) else [],
        "attack_sees": (cell.verdict.attack_sees | cell.verdict.inference_sees).names(),
        "observer": config.observer.spec() if cell.inference else None,
        "granted": threat.grants.names() if attack else [],
        "collusion": attack is not None and cell.malicious > 1,
        "attacker_data": _attacker_data(cell) if attack else None,
        "first_round": threat.first_round if attack else None,
        "last_round": threat.last_round if attack else None,
        "every": threat.every if attack else None,
        "clients": sampled.total,
        "per_round": sampled.expected,
        "sampling": sampled.sampling if sampled.expected < sampled.total else "all",
        "true_f": cell.malicious if attack else 0,
        "told_f": cell.told,
        "f_known": config.clients.assumed_f != "unknown",
        "rows": cell.rows,
        "told_per_round": cell.told_rows,
        "defense": str(cell.pipeline),
        "rule_needs": {stage.name: [way.names() for way in stage.needs] for stage in cell.pipeline.stages},
        "server_sees": cell.verdict.rule_sees.names(),
        "server_shown": shown.names(),
        "unproven": cell.pipeline.unproven(cell.rows, cell.told_rows),
        "root_data": {"examples": root, "overlap_with_test": 0, "overlap_with_clients": 0} if root else None,
        "preparation": {"origin": cell.data.preparation.origin, "what": cell.data.preparation.what},
        "partition": str(cell.partition),
        **({"shared": config.task.shared} if config.task.shared else {}),
        **({"architecture": str(cell.architecture)} if cell.architecture.in_time else {}),
        "algorithm": cell.training.algorithm.name,
        "secure_aggregation": cell.mode.name,
        "protocol": protocol_card(cell, secret_noise),
        "privacy": cell.noise.name,
        "noise": cell.noise.added_by,
        "epsilon": None,
        "epsilon_note": cell.noise.note(cell.protocol.masked),
        "noise_note": NOISE_IS_SECRET[secret_noise] if noise_drawn(cell) else None,
        "noise_from": DRAWN_FROM[secret_noise] if noise_drawn(cell) else None,
        "reproducible": not (secret_noise and noise_drawn(cell)),
    }


def threat_in_words(cell: Cell) -> str:
    """Who attacks, and what they see."""
    if cell.inference is None:
        public = f" Everybody has {cell.config.task.shared:.3g} of the examples." if cell.config.task.shared else ""
        others = f" {cell.architecture.shows_others}" if cell.architecture.shows_others else ""
        return (repr(cell.threat_left) if cell.adversary else "Nobody is malicious.") + public + others
    return observer_in_words(cell, cell.inference)


def observer_in_words(cell: Cell, attack: InferenceAttack) -> str:
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


def _attacker_data(cell: Cell) -> str:
    if cell.copying:
        return "copies of honest clients' shares of the partition, which is among the honest alone"
    return "the malicious clients' own share of the partition" + (
        " and what is public" if cell.config.task.shared else ""
    )


def acts_on(attack: PoisonAttack) -> list[str]:
    """What an attack tampers with: where it overrides an honest method, and on which channels it lies."""
    methods = {"poison": "data", "silent": "participation", "plan": "local training", "craft": "update"}
    own = [what for method, what in methods.items() if attack.overrides(method)]
    return list(dict.fromkeys([*own, *(channel.card for channel in attack.lies)]))
