"""Red flags: what makes the figures of one record doubtful. One flag, one function, one row in `FLAGS`.

Each function gets a record's result and threat card and returns None, or one line that names the figure, the threshold,
and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Part = Mapping[str, Any]


def weak_task(result: Part, card: Part) -> str | None:
    clean, chance = result["corners"]["clean_mean"], result["chance"]
    if clean is None or clean >= 2 * chance:
        return None
    return (
        f"the mean without attack reaches {_percent(clean)}, less than twice chance ({_percent(chance)}): "
        "train longer, or take a task that can be learned."
    )


def told_wrong_f(result: Part, card: Part) -> str | None:
    if card["attack"] is None or card["told_f"] == card["true_f"]:
        return None
    return (
        f"the rule was told f = {card['told_f']} while {card['true_f']} clients are hostile: "
        "drop clients.assumed_f, unless an unknown f is what you study."
    )


def outvoted(result: Part, card: Part) -> str | None:
    rounds = result["rounds"]
    if not rounds["outvoted"]:
        return None
    return (
        f"in {rounds['outvoted']} of {rounds['total']} rounds more hostile clients were drawn than the rule was told: "
        "draw more clients per round, or raise clients.assumed_f."
    )


def unproven(result: Part, card: Part) -> str | None:
    return "; ".join(card["unproven"]) or None


def past_its_best(result: Part, card: Part) -> str | None:
    best, final = result["best_accuracy"], result["final_accuracy"]
    if best - final <= 0.05:
        return None
    return (
        f"best {_percent(best)}, final {_percent(final)}, more than 5 points apart: "
        "never quote the best round; look at the curve."
    )


def diverged(result: Part, card: Part) -> str | None:
    if not result["diverged"]:
        return None
    return "the loss is not finite: divergence, which a lower lr may mend, is no finer success of the attack."


def class_lost(result: Part, card: Part) -> str | None:
    worst, final = result["worst_class_accuracy"], result["final_accuracy"]
    if worst >= final / 2:
        return None
    return (
        f"the worst class has {_percent(worst)}, less than half of the {_percent(final)} overall: "
        "quote it beside the average."
    )


def below_chance(result: Part, card: Part) -> str | None:
    final, chance = result["final_accuracy"], result["chance"]
    if final >= chance / 2:
        return None
    return (
        f"{_percent(final)} is far below chance ({_percent(chance)}): "
        "the labels were permuted rather than the model destroyed."
    )


def abandoned_rounds(result: Part, card: Part) -> str | None:
    rounds = result["rounds"]
    if not rounds["abandoned"]:
        return None
    return f"{rounds['abandoned']} of {rounds['total']} rounds changed nothing: {rounds['why_abandoned']}"


FLAGS: dict[str, Callable[[Part, Part], str | None]] = {
    flag.__name__: flag
    for flag in (
        weak_task,
        told_wrong_f,
        outvoted,
        unproven,
        past_its_best,
        diverged,
        class_lost,
        below_chance,
        abandoned_rounds,
    )
}


def raised(result: Part, card: Part) -> list[dict[str, str]]:
    """The flags that a record raises, as ``{"flag": name, "said": one line}``."""
    found = ((name, flag(result, card)) for name, flag in FLAGS.items())
    return [{"flag": name, "said": said} for name, said in found if said is not None]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
