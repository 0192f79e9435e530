"""May these run together? Compares what attack and rule need with what is exposed and granted, before anything runs.

    needs <= exposed by the architecture, less what the protocol hides, and, for attackers, granted by the threat model

Secure aggregation is not a special case: it hides EACH_UPDATE, so every rule that needs to see single updates is refused, and
never runs on values that nobody could have seen. This forbids Krum under masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import (
    PUBLIC,
    SINGLE_UPDATES,
    Exposure,
    InferenceAttack,
    Masking,
    Needs,
    Pipeline,
    PoisonAttack,
    Sight,
    ThreatModel,
    first_met,
    needs_in_words,
)
from fedguard.errors import PreconditionError


@dataclass(frozen=True)
class Admissibility:
    """Whether a cell may run, and what its attack and its rule see.

    Attributes:
        reasons: one line for each thing that forbids it; empty if it may run.
        attack_sees, rule_sees, inference_sees: the sights that the attack, the rules and an inferring server needed and got.
    """

    reasons: tuple[str, ...]
    attack_sees: Sight = Sight.NOTHING
    rule_sees: Sight = Sight.NOTHING
    inference_sees: Sight = Sight.NOTHING


def derive_exposure(
    architecture: Exposure, mode: Masking | type[Masking], root_data: bool = False, statistics: bool = False
) -> Exposure:
    """What server and clients see of ``architecture`` under a secure aggregation mode, with or without root data.

    Args:
        statistics: whether clients send running statistics beside their updates, which a server sees without masks.
    """
    # Whatever a plug-in's mode declares, no mode shows single updates
    server = architecture.server.with_implied() & ~mode.hides | (mode.shows & ~SINGLE_UPDATES)
    server |= Sight.ROOT_DATA if root_data else Sight.NOTHING
    server |= Sight.STATISTICS if statistics and not mode.masked else Sight.NOTHING
    return Exposure(server, architecture.clients & ~mode.hides)


def judge(
    pipeline: Pipeline,
    attack: PoisonAttack | None,
    exposure: Exposure,
    threat: ThreatModel,
    updates: int,
    told: int,
    mode: Masking,
    more_rows: str = "",
) -> Admissibility:
    """Whether ``attack`` against ``pipeline`` may run.

    Args:
        updates: n, the (expected) number of rows that the rule gets in a round: single updates, or means.
        told: f, the number of malicious rows that the rule assumes.
        more_rows: remedy for too few rows without masks, if more clients do not help.
    """
    of_rule, rule_sees = _judge_rule(pipeline, exposure, mode, updates, told, more_rows)
    granted = (threat.grants | PUBLIC) & exposure.clients
    of_attack, attack_sees = _judge_attack(attack, granted) if attack else ([], Sight.NOTHING)
    return Admissibility((*of_rule, *of_attack), attack_sees, rule_sees)


def judge_inference(
    attack: InferenceAttack, exposure: Exposure, malicious: bool, mode: Masking, trusted: bool = False
) -> tuple[list[str], Sight]:
    """What forbids an attack on the clients' privacy, and what the attack sees.

    Args:
        malicious: whether the server may send another model.
        trusted: whether the server adds the noise itself. The attack then sees only what it publishes.
    """
    # A trusted server keeps the updates to itself, so an adversary sees only the noisy models that it publishes
    server = exposure.server.with_implied() & ~(SINGLE_UPDATES | Sight.GROUP_SUMS if trusted else Sight.NOTHING)
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
        elif missing & mode.hides:
            why = f"secure_aggregation: {mode.name} hides it."
        elif trusted:
            why = "the server is trusted with it, and adds its noise before it publishes a model."
        elif missing == Sight.STATISTICS:
            why = "nobody sends any in a round here. Use server, with training.statistics: weighted, average or pooled."
        else:
            why = "this architecture does not show it."
        reasons.append(f"{attack.name} needs {needs_in_words(attack.needs)}; {why}")
    return reasons, met or Sight.NOTHING


def _judge_rule(
    pipeline: Pipeline, exposure: Exposure, mode: Masking, rows: int, told: int, more_rows: str
) -> tuple[list[str], Sight]:
    """What forbids the rule, and what it sees."""
    reasons: list[str] = []
    sees, given = Sight.NOTHING, exposure.server & ~mode.kept_from_rules
    missing: dict[Needs, list[str]] = {}
    for stage in pipeline.stages:
        met = first_met(stage.needs, given)
        if met is None:
            missing.setdefault(stage.needs, []).append(stage.name)
        # Weights by examples remain possible under masks, because each client weighs its own update: before any mixing
        elif mode.masked and stage.reads_clients and (pipeline.mixings or not stage.by_samples):
            reasons.append(
                f"{stage.name} looks up the client behind each row; under secure_aggregation: {mode.name} a row is a mean "
                f"of several. {mode.remedy}"
            )
        else:
            sees |= met
    reasons += [
        f"{' and '.join(names)} {'needs' if len(names) == 1 else 'need'} {needs_in_words(needs)}; "
        f"{_why_hidden(needs[0], exposure, mode)} The rule is given {given.words()}."
        for needs, names in missing.items()
    ]
    reasons += mode.reasons(exposure.server)
    try:
        if not mode.masked or not reasons:  # what is hidden is not also too few
            pipeline.check(rows, told)
    except PreconditionError as error:
        reasons.append(f"{error} {mode.more_rows or more_rows}".rstrip())
    return reasons, sees


def _judge_attack(attack: PoisonAttack, sees: Sight) -> tuple[list[str], Sight]:
    """What forbids the attack, and what it sees."""
    met = first_met(attack.needs, sees)
    if met is not None:
        return [], met
    return [
        f"{attack.name} needs {needs_in_words(attack.needs)}; the malicious clients see {sees.words()}. "
        "Grant more in threat.knowledge, unless the protocol hides it."
    ], Sight.NOTHING


def _why_hidden(needed: Sight, exposure: Exposure, mode: Masking) -> str:
    if needed & (mode.hides | mode.kept_from_rules):
        return f"secure_aggregation: {mode.name} hides it. {mode.remedy}"
    if Sight.ROOT_DATA in needed and Sight.ROOT_DATA not in exposure.server:
        return "give the server some with server.root_data."
    if Sight.TIMES in needed and Sight.TIMES not in exposure.server:
        return (
            "here no update has an age of its own. Use an architecture in which nobody waits, such as fedbuff or "
            "parameter_server(consistency='eventual')."
        )
    if Sight.GRAPH in needed and Sight.GRAPH not in exposure.server:
        return "here a server aggregates, which has no update of its own. Use d_psgd, or another way without a server."
    return "this architecture does not show it. Use server, or a rule that needs no more than it is given."
