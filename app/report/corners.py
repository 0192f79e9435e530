"""The four corners: what a defense costs where nobody attacks, and what the attacks cost where nobody defends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

from fedguard.app.report.elements import el, table
from fedguard.app.report.records import ran, with_setting

from fedguard.bench.matrix import FIGURES, Entry
from fedguard.bench.run import Run
from fedguard.bench.stats import estimate

#: By what it is called, where a result holds it.
_Value = Callable[[dict[str, Any]], float | None]


def corners(run: Run) -> list[Element]:
    """The robustness tax of each defense, and the harm of each attack to the plain mean."""
    tax = _rows(
        run, "defense", [_corner("clean_mean"), _corner("clean_defense"), lambda result: result["robustness_tax"]]
    )
    harm = _rows(run, "attack", [_corner("clean_mean"), _corner("attack_mean"), _harm])
    if not tax and not harm:
        return [el("p", "No trial of this run has a clean counterpart to be held against.")]
    return list(_tables(tax, harm))


def _tables(tax: list[list[str]], harm: list[list[str]]) -> Iterator[Element]:
    if tax:
        heads = ["defense", "mean, no attack", "defense, no attack", "robustness tax"]
        yield table("What a defense costs where nobody attacks: final accuracy in %, tax in points", heads, tax, "lr")
    if harm:
        heads = ["attack", "mean, no attack", "mean, attacked", "harm"]
        yield table("What an attack costs where nobody defends: final accuracy in %, harm in points", heads, harm, "lr")
    yield el(
        "p",
        "The fourth corner, attack against defense, is the matrix above. Differences are taken seed by seed; means over seeds "
        "± 95 % interval.",
        class_="note",
    )


def _rows(run: Run, side: str, values: list[_Value]) -> list[list[str]]:
    """For each defense or attack and setting the means over seeds, each seed once."""
    found: dict[str, dict[int, list[float]]] = {}
    for swept, record in ran(run):
        told = [value(record["result"]) for value in values]
        if None not in told and (side == "defense" or swept["attack"] != "none"):
            row = found.setdefault(with_setting(swept[side], run, swept), {})
            row[record["seed"]] = [value for value in told if value is not None]
    known = FIGURES["final_accuracy"]
    return [
        [setting, *(Entry(estimate(column), "ok", known).text() for column in zip(*seeds.values(), strict=True))]
        for setting, seeds in found.items()
    ]


def _corner(name: str) -> _Value:
    return lambda result: result["corners"].get(name)


def _harm(result: dict[str, Any]) -> float | None:
    clean, attacked = result["corners"].get("clean_mean"), result["corners"].get("attack_mean")
    return None if clean is None or attacked is None else float(clean - attacked)
