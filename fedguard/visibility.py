"""May these run together? Compares what attack and rule need with what is exposed and granted, before anything runs.

    needs <= exposed by the architecture, less what the protocol hides, and, for attackers, granted by the threat model

Secure aggregation is no case of its own: it hides EACH_UPDATE, so every rule that needs to see single updates is refused,
and is never run on values that nobody could have seen. This is the rule that forbids Krum under masking.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import (
    Exposure,
    InferenceAttack,
    Needs,
    Pipeline,
    PoisonAttack,
    Sight,
    ThreatModel,
    first_met,
    needs_in_words,
)
from fedguard.errors import PreconditionError

_SINGLE = Sight.EACH_UPDATE | Sight.HONEST_UPDATES


@dataclass(frozen=True)
class Mode:
    """A mode of secure aggregation.

    Attributes:
        hidden, shown: what it takes from sight, and what it shows instead.
        words: who sees what.
        kept_from_rules: what the server sees and the protocol itself works with, so that no rule is given it.
    """

    hidden: Sight
    shown: Sight
    words: str
    kept_from_rules: Sight = Sight.NOTHING


_MASKED = Sight.SUM | Sight.MASKED | Sight.TRANSCRIPT

PROTOCOLS: dict[str, Mode] = {
    "off": Mode(
        Sight.NOTHING,
        Sight.NOTHING,
        "The server sees each update, and colluders who tap the wire see those of the honest clients.",
    ),
    "full": Mode(
        _SINGLE | Sight.GROUP_SUMS,
        _MASKED,
        "The server sees one sum of all updates, and its rule gets their mean; nobody sees another's update.",
    ),
    "groups": Mode(
        _SINGLE,
        _MASKED | Sight.GROUP_SUMS,
        "The server sees the sum of each group of clients, and its rule gets their means; nobody sees another's update.",
    ),
    "group_testing": Mode(
        _SINGLE,
        _MASKED | Sight.GROUP_SUMS,
        "The server sees the sums of overlapping groups in one round, scores them on its clean data, and from then on sees one "
        "sum without those whom it suspects; its rule gets one mean; nobody sees another's update.",
        kept_from_rules=Sight.GROUP_SUMS,
    ),
}

#: What to do about a rule that a mode hides too much from.
_MENDS = {
    "full": "Use mean or client_clipping >> mean, mask within groups, or switch masking off.",
    "groups": "Use a rule that takes means of groups, such as median, or switch masking off.",
    "group_testing": "Use mean or client_clipping >> mean, mask within groups, or switch masking off.",
}


@dataclass(frozen=True)
class Verdict:
    """Whether a cell may run, and what its two sides see.

    Attributes:
        reasons: one line for each thing that forbids it; empty where it may run.
        attack_sees, rule_sees, inference_sees: the sights that attack, rules and a server that infers needed and got.
    """

    reasons: tuple[str, ...]
    attack_sees: Sight = Sight.NOTHING
    rule_sees: Sight = Sight.NOTHING
    inference_sees: Sight = Sight.NOTHING


def exposed(architecture: Exposure, secure_aggregation: str = "off", root_data: bool = False) -> Exposure:
    """What both sides see of ``architecture`` under a mode of secure aggregation, with or without root data."""
    mode = PROTOCOLS[secure_aggregation]
    server = architecture.server.with_implied() & ~mode.hidden | (mode.shown & ~_SINGLE)
    return Exposure(server | (Sight.ROOT_DATA if root_data else Sight.NOTHING), architecture.clients & ~mode.hidden)


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
        updates: n, the (expected) number of rows that the rule gets in a round: single updates, or means.
        told: f, the number of malicious ones the rule is told to expect among them.
    """
    of_rule, rule_sees = _judge_rule(pipeline, exposure, secure_aggregation, updates, told)
    of_attack, attack_sees = _judge_attack(attack, threat.grants & exposure.clients) if attack else ([], Sight.NOTHING)
    return Verdict((*of_rule, *of_attack), attack_sees, rule_sees)


def judge_inference(
    attack: InferenceAttack, exposure: Exposure, malicious: bool, secure_aggregation: str = "off", trusted: bool = False
) -> tuple[list[str], Sight]:
    """What forbids an attack on the clients' privacy, and what it sees.

    Args:
        malicious: whether the server may send another model.
        trusted: whether the server adds the noise itself: then who infers sees only what it publishes.
    """
    server = exposure.server.with_implied() & ~(_SINGLE | Sight.GROUP_SUMS if trusted else Sight.NOTHING)
    reasons = []
    if attack.active and trusted:
        reasons.append(
            f"{attack.name} is mounted by the server, and protocol.privacy trusts it to add the noise. "
            "Use kind: record or distributed, where the server is not trusted."
        )
    elif attack.active and not malicious:
        reasons.append(
            f"{attack.name} sends the clients another model, and a curious server keeps to the protocol. "
            "Set observer.server: malicious."
        )
    met = first_met(attack.needs, server)
    if met is None:
        missing = attack.needs[0] & ~server
        if missing == Sight.ROOT_DATA:
            why = "give the server some with server.root_data."
        elif missing & PROTOCOLS[secure_aggregation].hidden:
            why = f"secure_aggregation: {secure_aggregation} hides it."
        elif trusted:
            why = "the server is trusted with it, and adds its noise before it publishes a model."
        else:
            why = "this architecture does not show it."
        reasons.append(f"{attack.name} needs {needs_in_words(attack.needs)}; {why}")
    return reasons, met or Sight.NOTHING


def _judge_rule(
    pipeline: Pipeline, exposure: Exposure, secure_aggregation: str, rows: int, told: int
) -> tuple[list[str], Sight]:
    """What forbids the rule, and what it sees."""
    reasons: list[str] = []
    sees, given = Sight.NOTHING, exposure.server & ~PROTOCOLS[secure_aggregation].kept_from_rules
    missing: dict[Needs, list[str]] = {}
    for stage in pipeline.stages:
        met = first_met(stage.needs, given)
        if met is None:
            missing.setdefault(stage.needs, []).append(stage.name)
        elif secure_aggregation != "off" and stage.reads_clients and not stage.by_samples:
            reasons.append(
                f"{stage.name} looks up the client behind each row; under secure_aggregation: {secure_aggregation} a row is "
                f"a mean of several. {_MENDS[secure_aggregation]}"
            )
        else:
            sees |= met
    reasons += [
        f"{' and '.join(names)} {'needs' if len(names) == 1 else 'need'} {needs_in_words(needs)}; "
        f"{_why_hidden(needs[0], exposure, secure_aggregation)} The rule is given {given.words()}."
        for needs, names in missing.items()
    ]
    if secure_aggregation == "group_testing" and Sight.ROOT_DATA not in exposure.server:
        reasons.append("group_testing scores groups on clean data at the server: give it some with server.root_data.")
    try:
        if secure_aggregation == "off" or not reasons:  # what is hidden is not also too few
            pipeline.check(rows, told)
    except PreconditionError as error:
        groups = " Here n counts groups: raise their number." if secure_aggregation == "groups" else ""
        reasons.append(f"{error}{groups}")
    return reasons, sees


def _judge_attack(attack: PoisonAttack, sees: Sight) -> tuple[list[str], Sight]:
    """What forbids the attack, and what it sees."""
    met = first_met(attack.needs, sees)
    if met is not None:
        return [], met
    return [
        f"{attack.name} needs {needs_in_words(attack.needs)}; the colluders see {sees.words()}. "
        "Grant more in threat.knowledge, unless the protocol hides it."
    ], Sight.NOTHING


def _why_hidden(needed: Sight, exposure: Exposure, secure_aggregation: str) -> str:
    mode = PROTOCOLS[secure_aggregation]
    if needed & (mode.hidden | mode.kept_from_rules):
        return f"secure_aggregation: {secure_aggregation} hides it. {_MENDS[secure_aggregation]}"
    if Sight.ROOT_DATA in needed and Sight.ROOT_DATA not in exposure.server:
        return "give the server some with server.root_data."
    return "this architecture does not show it."
