"""The threat card: under which assumptions a figure was obtained, recorded for every cell."""

from __future__ import annotations

from typing import Any

from fedguard.bench.protocol import protocol_card
from fedguard.config import Cell
from fedguard.contracts import InferenceAttack, PoisonAttack, Protocol
from fedguard.visibility import exposed


def threat_card(cell: Cell) -> dict[str, Any]:
    """What is known of a cell's threat before it runs; the record adds the measured dissimilarity and malicious share."""
    config, threat, attack = cell.config, cell.threat, cell.adversary
    sampled = cell.participation
    root = config.server.root_data
    shown = exposed(cell.architecture.exposes, config.protocol.mode, root > 0).server
    return {
        "in_words": threat_in_words(cell),
        "attack": str(cell.named) if cell.named else None,
        "goal": cell.named.goal if isinstance(cell.named, PoisonAttack | InferenceAttack) else None,
        "acts_on": acts_on(attack) if isinstance(attack, PoisonAttack) else [],
        "attack_sees": (cell.verdict.attack_sees | cell.verdict.inference_sees).names(),
        "observer": config.observer.model_dump() if cell.inference else None,
        "granted": threat.grants.names() if attack else [],
        "collusion": attack is not None and cell.hostile > 1,
        "attacker_data": _attacker_data(cell) if attack else None,
        "first_round": threat.first_round if attack else None,
        "last_round": threat.last_round if attack else None,
        "every": threat.every if attack else None,
        "clients": sampled.total,
        "per_round": sampled.expected,
        "sampling": sampled.sampling if sampled.expected < sampled.total else "all",
        "true_f": cell.hostile if attack else 0,
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
        "algorithm": config.training.algorithm,
        "secure_aggregation": config.protocol.mode,
        "protocol": protocol_card(cell),
        "privacy": "none" if config.protocol.privacy == "none" else config.protocol.privacy.kind,
        "noise": _who_adds_noise(config.protocol),
        "epsilon": None,
        "epsilon_note": _epsilon_note(config.protocol),
    }


def threat_in_words(cell: Cell) -> str:
    """Who attacks, and what they see."""
    if cell.inference is None:
        return repr(cell.threat_left) if cell.adversary else "Nobody is malicious."
    attack, wants = cell.inference, cell.config.observer
    who = "Whoever reads the published models" if cell.trusted_server else f"A {wants.server} server"
    watched = {
        "round": f"watches round {wants.round}",
        "training": "watches every round",
        "model": "takes the final model",
    }[attack.watches]
    told = ", and is told the labels" if wants.labels else ""
    return f"{who} {watched}, and infers the clients' data; it sees {cell.verdict.inference_sees.words()}{told}."


def _attacker_data(cell: Cell) -> str:
    if cell.copying:
        return "copies of honest clients' shares of the partition, which is among the honest alone"
    return "the malicious clients' own share of the partition"


def _who_adds_noise(protocol: Protocol) -> str | None:
    if protocol.privacy == "none":
        return None
    return "server" if protocol.privacy.kind == "client" else "client"


#: By the kind of noise, who adds it to what.
_NOISE = {
    "distributed": "each client adds its share of the noise before the masks",
    "record": "each client adds noise in each step of its training, so that its examples are hidden; a record's epsilon is not "
    "a client's",
    "client": "a trusted server adds noise to the sum of the clipped updates, so that each client is hidden",
}


def _epsilon_note(protocol: Protocol) -> str:
    if protocol.privacy != "none":
        return f"{_NOISE[protocol.privacy.kind]}; what it proves is in the result"
    masked = "; secure aggregation alone has no epsilon" if protocol.masked else ""
    return f"no noise is added, so there is no differential privacy{masked}"


def acts_on(attack: PoisonAttack) -> list[str]:
    """What an attack tampers with: what it overrides of its contract."""
    methods = {"poison": "data", "silent": "participation", "plan": "local training", "craft": "update"}
    kind = type(attack)
    return [what for method, what in methods.items() if getattr(kind, method) is not getattr(PoisonAttack, method)]
