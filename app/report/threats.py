"""Threat cards: the assumptions behind each metric."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from fedguard.bench.pages.elements import el, table
from fedguard.bench.records.schema import ThreatCard
from fedguard.bench.records.taxonomy import taxonomy
from fedguard.bench.results.run import Run


def threats(run: Run) -> list[Element]:
    """Adversary and sights of each attack; assumed f and sights of each defense; and the kinds of federation."""
    trials = list(run.trials())
    cards = [(swept, record["threat_card"]) for swept, record in trials]
    if not cards:
        return [el("p", "Nothing ran.")]
    kinds = [taxonomy(record) for _, record in trials]
    words = dict.fromkeys(tuple(one.word for one in kind) for kind in kinds)
    attacked = any(card["attack"] for _, card in cards)
    attacks: dict[tuple[str, ...], list[str]] = {}
    rules: dict[tuple[str, ...], None] = {}
    for swept, card in cards:
        attacks.setdefault((card["in_words"], _tampers(card)), []).append(swept["attack"])
        if card["attack"] or not attacked:
            rules[_rule(swept["defense"], card)] = None
    rows = [(", ".join(dict.fromkeys(names)), *words) for words, names in attacks.items()]
    heads = ["defense", "clients in a round", "malicious clients", "told", "sees", "run outside of what is proven"]
    return [
        table("The attacks, in words", ["attack", "who, and what they see", "goal; acts on"], rows, "l"),
        table("The defenses: what each is told of the number of malicious clients, and sees", heads, rules, "lrrrll"),
        table("The kinds of federation, in six words", [one.aspect for one in kinds[0]], words, "l"),
    ]


def _tampers(card: ThreatCard) -> str:
    acts = f"; {', '.join(card['acts_on'])}" if card["acts_on"] else ""
    return f"{card['goal'] or 'none'}{acts}"


def _rule(defense: str, card: ThreatCard) -> tuple[str, ...]:
    told = str(card["assumed_f"]) if card["f_known"] else f"{card['assumed_f']} (not known to it)"
    malicious = str(card["malicious"]) if card["attack"] and card["malicious"] else "none"
    sees = ", ".join(name.replace("_", " ") for name in card["server_sees"]) or "nothing but what is aggregated"
    unproven = "; ".join(map(str, card["unproven"])) or "no"
    return defense, f"{card['per_round']} of {card['clients']}", malicious, told, sees, unproven
