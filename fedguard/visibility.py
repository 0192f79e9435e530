"""May these run together? Compares what attack and rule need with what is exposed and granted, before anything runs.

    needs <= exposed by the architecture, less what the protocol hides, and, for attackers, granted by the threat model

Secure aggregation is no case of its own: it hides EACH_UPDATE, so every rule that needs to see single updates is refused,
and is never run on values that nobody could have seen. This is the rule that forbids Krum under masking.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import (
    Exposure,
    Pipeline,
    PoisonAttack,
    Sight,
    ThreatModel,
    first_met,
    needs_in_words,
)
from fedguard.errors import PreconditionError

_SINGLE = Sight.EACH_UPDATE | Sight.HONEST_UPDATES

#: What each mode of secure aggregation takes from sight, and what it shows instead.
PROTOCOLS: dict[str, tuple[Sight, Sight]] = {
    "off": (Sight.NOTHING, Sight.NOTHING),
    "full": (_SINGLE | Sight.GROUP_SUMS, Sight.SUM | Sight.MASKED | Sight.TRANSCRIPT),
    "groups": (_SINGLE, Sight.GROUP_SUMS | Sight.SUM | Sight.MASKED | Sight.TRANSCRIPT),
}


@dataclass(frozen=True)
class Verdict:
    """Whether a cell may run, and what its two sides see.

    Attributes:
        reasons: one line for each thing that forbids it; empty where it may run.
        attack_sees, rule_sees: the sights that attack and rules needed and got.
    """

    reasons: tuple[str, ...]
    attack_sees: Sight = Sight.NOTHING
    rule_sees: Sight = Sight.NOTHING


def exposed(architecture: Exposure, secure_aggregation: str = "off", root_data: bool = False) -> Exposure:
    """What both sides see of ``architecture`` under a mode of secure aggregation, with or without root data."""
    hidden, shown = PROTOCOLS[secure_aggregation]
    server = architecture.server.with_implied() & ~hidden | (shown & ~_SINGLE)
    return Exposure(server | (Sight.ROOT_DATA if root_data else Sight.NOTHING), architecture.clients & ~hidden)


def judge(
    pipeline: Pipeline,
    attack: PoisonAttack | None,
    exposure: Exposure,
    threat: ThreatModel,
    updates: int,
    told: int,
    secure_aggregation: str = "off",
) -> Verdict:
    """Whether ``attack`` against ``pipeline`` may run.

    Args:
        updates: n, the (expected) number of updates in a round.
        told: f, the number of hostile ones the rule is told to expect among them.
    """
    reasons: list[str] = []
    rule_sees = Sight.NOTHING
    for stage in pipeline.stages:
        met = first_met(stage.needs, exposure.server)
        if met is None:
            reasons.append(
                f"{stage.name} needs {needs_in_words(stage.needs)}; "
                f"{_why_hidden(stage.needs[0], exposure, secure_aggregation)} "
                f"The server sees {exposure.server.words()}."
            )
        else:
            rule_sees |= met
    attack_sees = Sight.NOTHING
    if attack is not None:
        met = first_met(attack.needs, threat.grants & exposure.clients)
        if met is None:
            sees = threat.grants & exposure.clients
            reasons.append(
                f"{attack.name} needs {needs_in_words(attack.needs)}; the colluders see {sees.words()}. "
                "Grant more in threat.knowledge, unless the protocol hides it."
            )
        else:
            attack_sees = met
    try:
        pipeline.check(updates, told)
    except PreconditionError as error:
        reasons.append(str(error))
    return Verdict(tuple(reasons), attack_sees, rule_sees)


def _why_hidden(needed: Sight, exposure: Exposure, secure_aggregation: str) -> str:
    if Sight.ROOT_DATA in needed and Sight.ROOT_DATA not in exposure.server:
        return "give the server some with server.root_data."
    if secure_aggregation == "off":
        return "this architecture does not show it."
    hides = f"secure_aggregation: {secure_aggregation} hides it."
    return f"{hides} Use mean or client_clipping >> mean, or switch masking off."
