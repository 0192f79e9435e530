"""Reasons of refusals and failures, in words: one line for all cells with the same reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: Number of names listed; further ones are only counted.
_NAMED = 4


def reason_lines(cells: Iterable[tuple[Mapping[str, Any], str]], unit: str) -> Iterator[str]:
    """``none, ipm against krum, clients.total = 5 (6 trials): krum needs ...`` for each reason.

    Args:
        cells: the swept values of each cell or trial, attack and defense included, and the reason.
        unit: what is counted: cells, trials or seeds.
    """
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for swept, reason in cells:
        alike.setdefault(reason, []).append(swept)
    for reason, places in alike.items():
        attacks, defenses, others = (list(dict.fromkeys(map(part, places))) for part in (_attack, _defense, _others))
        where = f", {_list_names(others, 'other settings')}" if any(others) else ""
        several = f" ({len(places)} {unit})" if len(places) > 1 else ""
        yield f"{_list_names(attacks, 'attacks')} against {_list_names(defenses, 'defenses')}{where}{several}: {reason}"


def _attack(swept: Mapping[str, Any]) -> str:
    return str(swept["attack"])


def _defense(swept: Mapping[str, Any]) -> str:
    return str(swept["defense"])


def _others(swept: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {swept[key]}" for key in swept if key not in ("attack", "defense"))


def _list_names(names: list[str], kind: str) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} {kind}"
