"""An app of other people in a cell: what it brings itself, where an attack may act, and how a record holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedguard.contracts import PoisonAttack

if TYPE_CHECKING:
    from fedguard.config.cells import Cell

#: The defense that is the app's own strategy, whatever it does.
OWN = "own"

#: What an attack may override that acts where an app, or a loop that is not ours, lets nobody act; and in whose words.
ELSEWHERE = {
    "poison": "the clients' data",
    "prepare": "what clients settle before they train",
    "plan": "local training",
    "silent": "who takes part",
    "adds": "sums that clients pass on",
    "accuses": "what nodes say of each other",
    "claim_rate": "claims of speed",
    "claim_availability": "claims of availability",
    "checks_in": "when devices check in",
    "reports": "whether devices report",
}

#: The sections of a cell that an app takes the place of.
BROUGHT = ("task", "training", "protocol", "server", "evaluation", "architecture", "network")


def acts_elsewhere(attack: PoisonAttack) -> str | None:
    """On what an attack acts before updates are there; None if it only sends other updates or claims."""
    kind = type(attack)
    acts = (what for method, what in ELSEWHERE.items() if getattr(kind, method) is not getattr(PoisonAttack, method))
    return next(acts, None)


def reasons(cell: Cell) -> Iterator[str]:
    """Why an app may not be put to a cell's attack."""
    if cell.attack is not None and (where := acts_elsewhere(cell.attack)):
        yield (
            f"{cell.attack.name} acts on {where}, which is the app's own. Use an attack on updates, such as ipm, or a suite "
            "without an app."
        )
    if cell.pipeline.transforms:
        yield (
            f"{cell.pipeline.transforms[0].name} is done by clients, and an app's are its own. Use mixings and rules, "
            "which the server runs."
        )


def described() -> dict[str, Any]:
    """What stands in a record where an app brings its own."""
    return {
        "task": {
            "data": {"name": "flower"},
            "partition": {"name": "app"},
            "model": {"name": "app"},
            "partition_seed": None,
        },
        "training": {"rounds": 0, "algorithm": "app"},
        "architecture": "flower",
    }


def without_description(data: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's settings, from what a record holds of them: `described` is left out again, and the app's own strategy a word."""
    ours = described()
    told = {key: value for key, value in data.items() if key not in ours or value != ours[key]}
    return {**told, "defense": OWN} if told.get("defense", [{"name": OWN}]) == [{"name": OWN}] else told


def canonical(cell: Cell) -> dict[str, Any]:
    """JSON from which a cell of an app can be built again; see `Cell.canonical`."""
    config, app = cell.config, cell.config.app
    assert app is not None
    content = {
        "app": app.spec(),
        **described(),
        "clients": {
            "total": config.clients.total,
            "malicious": cell.malicious if cell.adversary else 0,
            "assumed_f": cell.told,
        },
        "threat": {"knowledge": list((config.threat if cell.adversary else type(config.threat)()).knowledge)},
        "attack": cell.named.spec() if cell.named else "none",
        "defense": [{"name": OWN}] if cell.own else cell.pipeline.spec(),
    }
    return dict(json.loads(json.dumps(content)))
