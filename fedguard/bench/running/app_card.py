"""The threat card of a third-party app."""

from __future__ import annotations

from typing import Any

from fedguard.bench.running.card import acts_on, observer_in_words
from fedguard.config import Cell
from fedguard.contracts import InferenceAttack, PoisonAttack, Sight


def app_card(cell: Cell) -> dict[str, Any]:
    """The threat card of an app; what the app does by itself is unknown."""
    attack, threat, nodes = cell.adversary, cell.threat, cell.config.clients.total
    shown = Sight.EACH_UPDATE | Sight.MODEL
    return {
        "in_words": app_in_words(cell),
        "attack": str(cell.named) if cell.named else None,
        "goal": cell.named.goal if isinstance(cell.named, PoisonAttack | InferenceAttack) else None,
        "acts_on": acts_on(attack) if isinstance(attack, PoisonAttack) else [],
        "attack_sees": (cell.verdict.attack_sees | cell.verdict.inference_sees).names(),
        "observer": cell.config.observer.spec() if cell.inference else None,
        "granted": threat.grants.names() if attack else [],
        "collusion": attack is not None and cell.malicious > 1,
        "attacker_data": "the malicious nodes' own" if attack else None,
        "first_round": 1 if attack else None,
        "last_round": None,
        "every": 1 if attack else None,
        "clients": nodes,
        "per_round": nodes,
        "sampling": "the app's",
        "true_f": cell.malicious if attack else 0,
        "told_f": cell.told,
        "f_known": True,
        "rows": nodes,
        "told_per_round": cell.told,
        "defense": cell.defense,
        "rule_needs": {stage.name: [way.names() for way in stage.needs] for stage in cell.pipeline.stages}
        if not cell.own
        else {},
        "server_sees": [] if cell.own else cell.verdict.rule_sees.names(),
        "server_shown": shown.names(),
        "unproven": cell.pipeline.unproven(nodes, cell.told) if not cell.own else [],
        "root_data": None,
        "partition": "the app's",
        "architecture": "flower",
        "algorithm": "the app's",
        "secure_aggregation": "off",
        "protocol": None,
        "privacy": "none",
        "noise": None,
        "epsilon": None,
        "epsilon_note": "what the app does for privacy is not looked at, and no guarantee is stated",
        "noise_from": None,
        "noise_note": None,
        "reproducible": True,
    }


def app_in_words(cell: Cell) -> str:
    """Who attacks, and what they see."""
    if cell.inference is not None:
        return observer_in_words(cell, cell.inference)
    if cell.adversary is None:
        return "Nobody is malicious."
    assert cell.config.app is not None
    return (
        f"{cell.malicious} of {cell.config.clients.total} nodes of the Flower app {cell.config.app.name} collude; together "
        f"they see {cell.threat.grants.words()}."
    )
