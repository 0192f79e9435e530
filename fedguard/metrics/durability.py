"""How long a backdoor outlives the attack."""

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
        rounds: after the last attack until the success was first below one half, or to the end.
        survived: it never was.
    """

    rounds: Count
    survived: bool


def durability(reports: Sequence[RoundReport], last_attack: int | None) -> Durability | None:
    """What the rounds say of it; None without a backdoor, or where the attack goes on to the end."""
    curve = [(report.round, report.backdoor) for report in reports if report.backdoor is not None]
    if not curve or last_attack is None or last_attack >= curve[-1][0]:
        return None
    after = [(round, success) for round, success in curve if round >= last_attack]
    fallen = next((round for round, success in after if success < 0.5), None)
    end = after[-1][0] if fallen is None else fallen
    return {"rounds": end - last_attack, "survived": fallen is None}
