"""What stands behind a cell, as facts and tables: who saw what, threat card, metrics, trials, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from fedguard.bench.pages.blocks import Facts, Heading, TableBlock
from fedguard.bench.records.schema import CompletedRecord, Record, ThreatCard
from fedguard.bench.records.taxonomy import taxonomy
from fedguard.bench.results.profile import SHOWN, ProfileEntry
from fedguard.metrics.figures import FIGURES, number_at
from fedguard.metrics.stats import over_seeds

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
    "assumed_f": "assumed f of the rule",
    "f_known": "the number of malicious clients is told",
    "clients": "clients",
    "per_round": "clients per round",
    "sampling": "how they are drawn",
    "rows": "rows that the rule gets",
    "assumed_f_per_round": "assumed f in a round",
    "worst_hostile_share": "largest share of malicious updates in a round",
    "defense": "defense",
    "unproven": "not proven",
    "root_data": "clean data at the server",
    "partition": "how the data are dealt",
    "subset": "examples that a trial draws",
    "architecture": "architecture",
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

#: Shown elsewhere on the page
_ELSEWHERE = ("in_words", "attack_sees", "granted", "server_sees", "server_shown", "rule_needs", "protocol")

_MEGABYTE = 1e6


def rounds(records: Sequence[CompletedRecord]) -> Facts:
    """What the attack sent and what the rule made of it: means over the trials."""
    lines = {"The rule": list(_rule(records)), "The attack": list(_attack(records)), "Rounds": list(_rounds(records))}
    return Facts([(name, its) for name, its in lines.items() if its], "What the attack and the rule did, on average")


def _mean(records: Sequence[CompletedRecord], *path: str) -> float | None:
    known = [value for record in records if (value := number_at(record["result"], path)) is not None]
    return sum(known) / len(known) if known else None


def _rule(records: Sequence[CompletedRecord]) -> Iterator[str]:
    recall, honest = _mean(records, "filter", "recall"), _mean(records, "filter", "honest_excluded")
    if recall is not None:
        yield f"excluded {100 * recall:.1f} % of the malicious updates"
    if honest is not None:
        most = [
            one["most_excluded"] for record in records if (one := record["result"]["filter"]) and one["most_excluded"]
        ]
        worst = max(most, key=lambda one: one["share"], default=None)
        client = (
            f", client {worst['client']} in {100 * worst['share']:.0f} % of its rounds"
            if worst and worst["share"]
            else ""
        )
        yield f"excluded {100 * honest:.1f} % of the honest updates{client}"
    bans = [ban for record in records for ban in record["result"]["rounds"].get("bans", [])]
    if bans:
        bad = sum(ban["malicious"] for ban in bans)
        yield f"banned {bad} malicious and {len(bans) - bad} honest clients"
    cosine, kappa = _mean(records, "aggregate", "cosine"), _mean(records, "aggregate", "kappa")
    if cosine is not None:
        yield f"its aggregate has a cosine of {cosine:.2f} with the honest mean"
    if kappa is not None:
        yield f"its largest kappa in a round is {kappa:.3g}"


def _attack(records: Sequence[CompletedRecord]) -> Iterator[str]:
    length = _mean(records, "aggregate", "hostile_length")
    if length is not None:
        yield f"sent updates {length:.2f} times as long as the honest ones"
    for name in dict.fromkeys(name for record in records for name in record["result"]["attack_notes"]):
        value = _mean(records, "attack_notes", name)
        yield f"{name.replace('_', ' ')}: {value:.3g}"
    sibling, own = (_mean(records, "attack_effect", name) for name in ("sibling", "attack"))
    if sibling is not None and own is not None:
        yield f"left the rule {own:.2f} of its progress along the honest mean; the most harmful sibling leaves {sibling:.2f}"


def _rounds(records: Sequence[CompletedRecord]) -> Iterator[str]:
    counts = [record["result"]["rounds"] for record in records]
    worst = max(one["worst_hostile_share"] for one in counts)
    if worst:
        yield f"at most {100 * worst:.0f} % of a round's updates were malicious"
    for name, said in (
        ("outvoted", "rounds with more malicious rows than the rule assumed"),
        ("silent", "updates did not arrive"),
        ("not_finite", "updates were dropped because they were not finite"),
        ("too_large", "updates were dropped because they were too large"),
        ("abandoned", "rounds changed nothing"),
    ):
        count = sum(cast(int, one.get(name, 0)) for one in counts)
        if count:
            yield f"{count} {said}"
    yield from dict.fromkeys(one["why_abandoned"] for one in counts if one["why_abandoned"])


def sights(card: ThreatCard) -> TableBlock:
    """Each kind of information: whether the attacker may see it, and the server, and who uses it."""
    columns = {
        "attacker may": card["granted"],
        "attack uses": card["attack_sees"],
        "server is shown": card["server_shown"],
        "rule reads": card["server_sees"],
    }
    names = dict.fromkeys(name for seen in columns.values() for name in seen)
    rows = [[_words(name), *("yes" if name in seen else "-" for seen in columns.values())] for name in names]
    return TableBlock([Heading("information"), *map(Heading, columns)], rows, card["in_words"], "Who saw what")


def needs(card: ThreatCard) -> TableBlock:
    """For each stage of the rule what it needs, of which one alternative suffices, and what the server is not shown of it."""
    shown = set(card["server_shown"])
    rows = [
        [
            stage,
            " and ".join(map(_words, way)) or "nothing",
            ", ".join(_words(one) for one in way if one not in shown) or "-",
        ]
        for stage, ways in card["rule_needs"].items()
        for way in ways
    ]
    heads = [Heading(name) for name in ("stage of the rule", "needs", "of which the server is not shown")]
    return TableBlock(heads, rows, "A stage that has several lines can do with any of them.", "What the rule needs")


def card(threat: Mapping[str, Any]) -> TableBlock:
    """The threat card, fact by fact; what does not apply is left out."""
    names = [*(name for name in _CARD if name in threat), *(name for name in threat if name not in _CARD)]
    rows = [
        [_CARD.get(name, _words(name)), _text(threat[name])]
        for name in names
        if name not in _ELSEWHERE and threat[name] not in (None, [], {})
    ]
    if threat["protocol"]:
        rows.append(["protocol", threat["protocol"]["in_words"]])
    return TableBlock([Heading("fact"), Heading("value")], rows, "The threat card")


def kind(record: Record) -> TableBlock:
    """The kind of federation: six terms, each with its reason."""
    rows = [list(one) for one in taxonomy(record)]
    return TableBlock([Heading("aspect"), Heading("word"), Heading("since")], rows, "What kind of federation it is")


def metrics(records: Sequence[CompletedRecord]) -> TableBlock:
    """Every metric that these trials of one cell have, with its interval."""
    rows = []
    for known in FIGURES.values():
        values = [value for record in records if (value := known.of(record)) is not None]
        if values:
            rows.append([known.heading, known.format_estimate(known.estimate(values))])
    return TableBlock([Heading("metric"), Heading("value", number=True)], rows, over_seeds(len(records)).capitalize())


def parties(records: Sequence[CompletedRecord]) -> TableBlock | None:
    """The accuracy of each party on the test examples of its own classes, if tasks differ."""
    found = [one for record in records if (one := record["result"].get("parties"))]
    accuracies: dict[tuple[int, ...], list[float]] = {}
    for one in found:
        for own, accuracy in zip(one["classes"], one["accuracy"], strict=True):
            accuracies.setdefault(tuple(own), []).extend([] if accuracy is None else [accuracy])
    known = FIGURES["final_accuracy"]
    rows = [
        [", ".join(map(str, own)), known.format_estimate(known.estimate(values)) if values else "not known"]
        for own, values in accuracies.items()
    ]
    heads = [Heading("classes"), Heading("accuracy, %", number=True)]
    return TableBlock(heads, rows, "Each party on the test examples of its classes", "Parties") if rows else None


def fates(records: Sequence[CompletedRecord]) -> TableBlock | None:
    """The accuracy of the same trainings with the running statistics of each fate, if the suite asks for others."""
    accuracies: dict[str, list[float]] = {}
    for record in records:
        own = record["result"].get("statistics")
        if own and (compared := own.get("compared")):
            for fate, accuracy in {own["fate"]: record["result"]["final_accuracy"], **compared}.items():
                accuracies.setdefault(fate, []).append(accuracy)
    known = FIGURES["final_accuracy"]
    rows = [[fate, known.format_estimate(known.estimate(values))] for fate, values in accuracies.items()]
    heads = [Heading("running statistics"), Heading("accuracy, %", number=True)]
    said = f"The same parameters with the running statistics of each fate, {over_seeds(len(records))}"
    return TableBlock(heads, rows, said, "Fates") if rows else None


def minority(records: Sequence[CompletedRecord]) -> TableBlock | None:
    """The honest clients that hold a class which fewer than a quarter of all clients hold, seed by seed."""
    rows: list[list[str | float | None]] = [
        [
            str(record["seed"]),
            str(one["client"]),
            ", ".join(map(str, one["classes"])),
            None if one["excluded"] is None else 100 * one["excluded"],
            None if one["accuracy"] is None else 100 * one["accuracy"],
        ]
        for record in records
        for one in record["result"]["minority"]
    ]
    heads = [Heading(name) for name in ("seed", "client", "rare classes")]
    heads += [Heading(name, number=True) for name in ("rounds in which it was excluded, %", "accuracy on them, %")]
    said = "Honest clients that hold a class which fewer than a quarter of all clients hold"
    return TableBlock(heads, rows, said, "Clients with rare classes") if rows else None


def trials(records: Sequence[Record]) -> TableBlock:
    """Cost and origin of each trial: a row for each fact, a column for each seed."""
    sides = {f"seed {record['seed']}": _cost(record) for record in records}
    facts = dict.fromkeys(fact for side in sides.values() for fact, value in side.items() if value)
    rows = [[fact, *(side[fact] for side in sides.values())] for fact in facts]
    return TableBlock([Heading("fact"), *map(Heading, sides)], rows, "Cost and origin of each trial")


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


def stages(part: ProfileEntry) -> TableBlock:
    """The time of a cell, stage by stage."""
    rows = [
        [
            _words(row["stage"]), f"{100 * row['share']:.1f}", f"{row['ms_per_round']:,.2f}",
            f"{row['seconds_per_trial']:,.3f}", f"{row['cpu_seconds_per_trial']:,.3f}", f"{row['calls_per_trial']:,.1f}",
        ]
        for row in part.rows(SHOWN)
    ]  # fmt: skip
    heads = [
        Heading(name, number=True) for name in ("share, %", "ms a round", "s a trial", "CPU s a trial", "calls a trial")
    ]
    said = (
        f"{part.words()}. What is done once in a trial is spread over its rounds; the first trial of a worker process pays for "
        "what later ones find ready."
    )
    return TableBlock([Heading("stage"), *heads], rows, said)


def _two_digits(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:,.2f}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{_words(str(key))}: {_text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)
