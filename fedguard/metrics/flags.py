"""Red flags: what makes a figure of one cell doubtful, computed from its record.

Each flag names the figure, the threshold, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flags(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The flags of a finished record, as ``{"flag": name, "said": one line}``."""
    return [{"flag": name, "said": said} for name, said in _raised(record["result"], record["threat_card"])]


def _raised(result: Mapping[str, Any], card: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    final, chance = result["final_accuracy"], result["chance"]
    clean = result["corners"]["clean_mean"]
    if clean is not None and clean < 2 * chance:
        yield "weak_task", (
            f"the mean without attack reaches {_percent(clean)}, less than twice chance ({_percent(chance)}): "
            "train longer, or take a task that can be learned."
        )
    if card["attack"] is not None and card["told_f"] != card["true_f"]:
        yield "told_wrong_f", (
            f"the rule was told f = {card['told_f']} while {card['true_f']} clients are hostile: "
            "drop clients.assumed_f, unless an unknown f is what you study."
        )
    if result["rounds"]["outvoted"]:
        yield "outvoted", (
            f"in {result['rounds']['outvoted']} of {result['rounds']['total']} rounds more hostile clients were drawn than the rule was told: "
            "draw more clients per round, or raise clients.assumed_f."
        )
    if card["unproven"]:
        yield "unproven", "; ".join(card["unproven"])
    if result["best_accuracy"] - final > 0.05:
        yield "past_its_best", (
            f"best {_percent(result['best_accuracy'])}, final {_percent(final)}, more than 5 points apart: "
            "never quote the best round; look at the curve."
        )
    if result["diverged"]:
        yield "diverged", "the loss is not finite: this is divergence, which a lower lr may mend, and no finer effect of the attack."
    if result["worst_class_accuracy"] < final / 2:
        yield "class_lost", (
            f"the worst class has {_percent(result['worst_class_accuracy'])}, less than half of the {_percent(final)} overall: "
            "quote it beside the average."
        )
    if final < chance / 2:
        yield "below_chance", (
            f"{_percent(final)} is far below chance ({_percent(chance)}): the labels were permuted rather than the model destroyed."
        )
    if result["rounds"]["abandoned"]:
        yield "abandoned_rounds", (
            f"{result['rounds']['abandoned']} of {result['rounds']['total']} rounds changed nothing: {result['rounds']['why_abandoned']}"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
