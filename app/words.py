"""A record as text and tables: threat card, kind, sights, controls, cost. Pure functions; texts of the record are unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from fedguard.bench.records.record import silent_mean
from fedguard.bench.records.schema import CompletedRecord, Record, Result
from fedguard.bench.records.taxonomy import taxonomy
from fedguard.metrics.figures import FIGURES, PRIVACY_GOALS, number_at
from fedguard.metrics.returns import in_shares

#: Explanations of the keys of a threat card, in the order in which they are shown
_CARD = {
    "attack": "attack",
    "goal": "goal",
    "acts_on": "tampers with",
    "collusion": "malicious clients share what they see",
    "attacker_data": "the attacker's data",
    "first_round": "first round of the attack",
    "last_round": "last round of the attack",
    "every": "attacks every ... rounds",
    "observer": "who infers, and from what",
    "malicious": "malicious clients",
    "assumed_f": "malicious clients that the rule reckons with",
    "f_known": "the number of malicious clients is told",
    "clients": "clients",
    "per_round": "clients per round",
    "sampling": "how they are drawn",
    "rows": "rows that the rule gets",
    "assumed_f_per_round": "malicious rows that it reckons with",
    "worst_hostile_share": "largest share of malicious updates in a round",
    "defense": "defense",
    "unproven": "not proven",
    "root_data": "clean data at the server",
    "partition": "how the data are dealt",
    "subset": "examples that a trial draws",
    "architecture": "how they train together",
    "dissimilarity": "how much the clients differ",
    "algorithm": "training",
    "secure_aggregation": "secure aggregation",
    "privacy": "noise for privacy",
    "noise": "who adds it",
    "epsilon": "epsilon",
    "epsilon_note": "what it covers",
    "noise_from": "where noise is drawn from",
    "noise_note": "what that leaves of privacy",
    "reproducible": "the seed gives the record again",
}

#: Shown beside the table.
_ELSEWHERE = ("in_words", "attack_sees", "granted", "server_sees", "server_shown", "rule_needs", "protocol")

_MEGABYTE = 1e6


def escape_label(text: str) -> str:
    """Escape text for the label of a menu, which is rendered as Markdown."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def card(threat: Mapping[str, Any]) -> list[dict[str, str]]:
    """A threat card, row by row; keys that do not apply are left out."""
    names = [*(name for name in _CARD if name in threat), *(name for name in threat if name not in _CARD)]
    return [
        {"fact": _CARD.get(name, _replace_underscores(name)), "value": _text(threat[name])}
        for name in names
        if name not in _ELSEWHERE and threat[name] not in (None, [], {})
    ]


def kind(record: Record) -> list[dict[str, str]]:
    """The kind of federation: the six terms, each with its reason."""
    return [{"aspect": one.aspect, "word": one.word, "since": one.since} for one in taxonomy(record)]


def sights(threat: Mapping[str, Any]) -> list[dict[str, str]]:
    """Each sight of a party: whether it is granted to the attacker or shown to the server, and who uses it."""
    columns = {
        "attacker may": threat["granted"],
        "attack does": threat["attack_sees"],
        "server may": threat["server_shown"],
        "rule does": threat["server_sees"],
    }
    names = dict.fromkeys(name for seen in columns.values() for name in seen)
    return [
        {
            "sees": _replace_underscores(name),
            **{heading: "yes" if name in seen else "-" for heading, seen in columns.items()},
        }
        for name in names
    ]


def needs(threat: Mapping[str, Any]) -> list[dict[str, str]]:
    """For each stage of the rule, what it needs (one of the alternatives suffices), and what of it the server does not see."""
    shown = set(threat["server_shown"])
    return [
        {
            "stage": stage,
            "needs": " and ".join(map(_replace_underscores, way)) or "nothing",
            "which the server": "is shown"
            if set(way) <= shown
            else "is not shown: " + ", ".join(_replace_underscores(name) for name in way if name not in shown),
        }
        for stage, ways in threat["rule_needs"].items()
        for way in ways
    ]


def verdict(records: Sequence[CompletedRecord]) -> str:
    """The result of one cell in a sentence: ``alie leaves median 81.2 % accuracy, of 90.4 % without attack.``"""
    card = records[0]["threat_card"]
    attack, defense, goal = card["attack"], card["defense"], card["goal"]
    told = {name: text for name in FIGURES if (text := _format_mean(records, name))}
    if "final_return" in told:
        return _verdict_of_returns(records, told)
    if not attack:
        return f"Without attack, {defense} reaches {told['final_accuracy']} accuracy."
    if goal in PRIVACY_GOALS:
        name = next((name for name in told if FIGURES[name].goal == goal), "")
        return f"{attack} against {defense}: " + (f"{FIGURES[name].title}: {told[name]}." if name else "no value.")
    clean = [record["result"]["controls"]["clean_defense"] for record in records]
    of = "" if None in clean else f", of {_interval([one for one in clean if one is not None])} % without attack"
    planted = told.get("attack_success")
    backdoor = f" Its backdoor succeeds in {planted} of the inputs, above a clean model." if planted else ""
    return f"{attack} leaves {defense} {told['final_accuracy']} accuracy{of}.{backdoor}"


def _verdict_of_returns(records: Sequence[CompletedRecord], told: Mapping[str, str]) -> str:
    card = records[0]["threat_card"]
    between = f"{told['final_return']} ({told['normalized_return']} of the way from guessing to perfect)"
    if not card["attack"]:
        return f"Without attack, {card['defense']} reaches a return of {between}."
    clean = [record["result"]["returns"]["controls"]["clean_defense"] for record in records]
    known, figure = [one for one in clean if one is not None], FIGURES["final_return"]
    of = f", of {figure.format_estimate(figure.estimate(known))} without attack" if len(known) == len(clean) else ""
    return f"{card['attack']} leaves {card['defense']} a return of {between}{of}."


def _format_mean(records: Sequence[CompletedRecord], name: str) -> str:
    """A metric with its unit; "" if no record has it."""
    values = [value for record in records if (value := FIGURES[name].of(record)) is not None]
    return FIGURES[name].format_with_unit(FIGURES[name].estimate(values)) if values else ""


def figures(records: Sequence[CompletedRecord]) -> list[dict[str, str]]:
    """The metrics of these records of one cell, each with its mean and interval."""
    found = []
    for known in FIGURES.values():
        values = [value for record in records if (value := known.of(record)) is not None]
        if values:
            found.append({"figure": known.heading, "value": known.format_estimate(known.estimate(values))})
    return found


def controls(records: Sequence[CompletedRecord]) -> list[dict[str, str]]:
    """The controls by mean and defense: without attack, with silent malicious clients, with attack; and the server alone."""

    results = [cast(Result, in_shares(record["result"])) for record in records]

    def mean(*path: str) -> str:
        return describe_values([number_at(result, path) for result in results])

    def describe_values(values: Sequence[float | None]) -> str:
        known = [value for value in values if value is not None]
        return _interval(known) if known else "not run"

    rows = [
        {
            "": "nobody attacks",
            "plain mean": mean("controls", "clean_mean"),
            "defense": mean("controls", "clean_defense"),
        }
    ]
    if records[0]["threat_card"]["attack"]:
        alone = describe_values([silent_mean(result) for result in results])
        rows += [
            {
                "": "the malicious clients send nothing",
                "plain mean": alone,
                "defense": mean("controls", "silent_defense"),
            },
            {
                "": "attack",
                "plain mean": mean("controls", "attack_mean"),
                "defense": mean("controls", "attack_defense"),
            },
        ]
    if mean("references", "root_only") != "not run":
        rows.append({"": "the server's clean data alone", "plain mean": mean("references", "root_only"), "defense": ""})
    return rows


def chance(records: Sequence[CompletedRecord]) -> str:
    """The accuracy of guessing, in a sentence; "" if the labels are unknown."""
    if "returns" in records[0]["result"]:
        return "Here the shares are of the way from the return of a guess to a perfect one."
    known = [chance for record in records if (chance := record["result"]["chance"]) is not None]
    return f"A guess has {_interval(known).partition(' ')[0]} %." if known else ""


def minority(records: Sequence[CompletedRecord]) -> list[dict[str, Any]]:
    """The accuracy of honest clients with rare classes, seed by seed, in percent."""
    return [
        {
            "seed": record["seed"],
            "client": one["client"],
            "rare classes": ", ".join(map(str, one["classes"])),
            "rounds in which it was excluded, %": None if one["excluded"] is None else round(100 * one["excluded"], 1),
            "accuracy on them, %": None if one["accuracy"] is None else round(100 * one["accuracy"], 1),
        }
        for record in records
        for one in record["result"]["minority"]
    ]


def parties(records: Sequence[CompletedRecord]) -> list[dict[str, Any]]:
    """The accuracy of each party on its own task, one row each, if tasks differ."""
    found = [record["result"]["parties"] for record in records if "parties" in record["result"]]
    told: dict[tuple[int, ...], list[float]] = {}
    for one in found:
        for own, accuracy in zip(one["classes"], one["accuracy"], strict=True):
            told.setdefault(tuple(own), []).extend([] if accuracy is None else [accuracy])
    return [
        {"classes": ", ".join(map(str, own)), "accuracy in %": _interval(values) if values else "not known"}
        for own, values in told.items()
    ]


def costs(records: Sequence[Record]) -> list[dict[str, str]]:
    """The cost of each trial and its environment: a row for each fact, a column for each seed."""
    sides = {f"seed {record['seed']}": _cost(record) for record in records}
    facts = dict.fromkeys(fact for side in sides.values() for fact, value in side.items() if value)
    return [{"fact": fact, **{seed: side[fact] for seed, side in sides.items()}} for fact in facts]


def _cost(record: Record) -> dict[str, str]:
    made = record["environment"]
    spent: Mapping[str, Any] = record["cost"] or {}
    sizes = {"peak memory, MB": "worker_peak_memory_bytes", "updates sent, MB": "update_bytes_sent"}
    sizes |= {"protocol sent, MB": "protocol_bytes_sent", "protocol received, MB": "protocol_bytes_received"}
    started = datetime.fromtimestamp(made["started"], UTC).strftime("%Y-%m-%d %H:%M") if "started" in made else ""
    return {
        "status": record["status"],
        "seconds": _two_digits(spent.get("seconds")),
        "CPU seconds": _two_digits(spent.get("cpu_seconds")),
        **{heading: _two_digits(spent.get(name), _MEGABYTE) for heading, name in sizes.items()},
        "FedGuard": str(made.get("fedguard", "")),
        "commit": str(made.get("git_commit") or ""),
        "torch": str(made.get("torch", "")),
        "device": str(made.get("device", "")),
        "started, UTC": started,
    }


def _two_digits(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:,.2f}"


def _interval(accuracies: Sequence[float]) -> str:
    return FIGURES["final_accuracy"].format_estimate(FIGURES["final_accuracy"].estimate(accuracies))


def _replace_underscores(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_replace_underscores(str(key))}: {_text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)
