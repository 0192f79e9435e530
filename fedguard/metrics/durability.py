"""Durability of a backdoor after the attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from fedguard.metrics.quantities import Count

if TYPE_CHECKING:
    from fedguard.contracts import RoundReport


class Durability(TypedDict):
    """How many rounds a backdoor outlived the attack.

    Attributes:
        rounds: rounds after the last attack until the success rate first fell below one half, or to the end.
        survived: whether it never fell below one half.
    """

    rounds: Count
    survived: bool


def durability(reports: Sequence[RoundReport], last_attack: int | None) -> Durability | None:
    """The durability from the reports; None without a backdoor, or if the attack continues to the end."""
    curve = [(report.round, report.backdoor) for report in reports if report.backdoor is not None]
    if not curve or last_attack is None or last_attack >= curve[-1][0]:
        return None
    after = [(round, success) for round, success in curve if round >= last_attack]
    fallen = next((round for round, success in after if success < 0.5), None)
    end = after[-1][0] if fallen is None else fallen
    return {"rounds": end - last_attack, "survived": fallen is None}
