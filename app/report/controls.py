"""The controls: the cost of a defense without attack, and the harm of the attacks without defense."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast
from xml.etree.ElementTree import Element

from fedguard.app.report.records import with_setting
from fedguard.bench.pages.elements import el, table
from fedguard.bench.records.record import silent_mean
from fedguard.bench.records.schema import Result
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, number_at
from fedguard.metrics.returns import in_shares

#: Reads a value from a result
_Value = Callable[[Result], float | None]


def controls(run: Run) -> list[Element]:
    """The robustness tax of each defense, and what each attack costs the plain mean, as loss by silence and harm."""
    tax = _rows(
        run, "defense", [_control("clean_mean"), _control("clean_defense"), lambda result: result["robustness_tax"]], 2
    )
    harm = _rows(
        run,
        "attack",
        [
            _control("clean_mean"),
            _control("attack_mean"),
            silent_mean,
            lambda result: _less(_control("clean_mean")(result), silent_mean(result)),
            lambda result: _less(silent_mean(result), _control("attack_mean")(result)),
        ],
        3,
    )
    if not tax and not harm:
        return [el("p", "No trial of this run has a clean counterpart to be held against.")]
    return list(_tables(tax, harm))


def _tables(tax: list[list[str]], harm: list[list[str]]) -> Iterator[Element]:
    if tax:
        heads = ["defense", "mean, no attack", "defense, no attack", "robustness tax"]
        yield table("What a defense costs where nobody attacks: final accuracy in %, tax in points", heads, tax, "lr")
    if harm:
        heads = ["attack", "mean, no attack", "mean, attacked", "mean, malicious clients silent", "absence", "harm"]
        says = "What an attack costs where nobody defends: final accuracy in %, absence and harm in points"
        yield table(says, heads, harm, "lr")
    yield el(
        "p",
        "The control of attack against defense is the matrix above. Absence is what is lost where the malicious clients only "
        "stay silent, since their data are missing; harm is what they send instead. Differences are taken seed by seed; means "
        "over seeds [95 % interval].",
        class_="note",
    )


def _rows(run: Run, side: str, values: list[_Value], shares: int) -> list[list[str]]:
    """For each defense or attack and setting the means over seeds, each seed once; the first two values are required.

    Args:
        shares: number of leading values that are accuracies; the others are differences of two.
    """
    found: dict[str, dict[int, list[float | None]]] = {}
    for swept, record in run.trials():
        told = [value(cast(Result, in_shares(record["result"]))) for value in values]
        if None not in told[:2] and (side == "defense" or swept["attack"] != "none"):
            row = found.setdefault(with_setting(swept[side], run, swept), {})
            row[record["seed"]] = told
    return [
        [
            setting,
            *(
                _format_seed_mean(column, number < shares)
                for number, column in enumerate(zip(*seeds.values(), strict=True))
            ),
        ]
        for setting, seeds in found.items()
    ]


def _format_seed_mean(values: Sequence[float | None], share: bool) -> str:
    known = [value for value in values if value is not None]
    figure = FIGURES["final_accuracy" if share else "harm"]
    return figure.format_estimate(figure.estimate(known)) if len(known) == len(values) else "-"


def _control(name: str) -> _Value:
    return lambda result: number_at(result, ("controls", name))


def _less(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before - after
