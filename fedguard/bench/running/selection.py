"""Choice of the worst attack of an ensemble: all members run on the first selection seed, the dangerous ones on all seeds."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedguard.config import PlannedCell

Trial = tuple[str, int]

#: Final accuracy, or normalized return, of each trial that is done; None for one that failed.
Finals = Mapping[Trial, float | None]


@dataclass(frozen=True)
class AttackSelection:
    """The race of an ensemble's members against one defense.

    Attributes:
        cell: the cell of the ensemble.
        members: the same cell under each single attack.
        seeds: the selection seeds.
        margin: how far above the worst score a member may be without being given up.
    """

    cell: PlannedCell
    members: tuple[PlannedCell, ...]
    seeds: tuple[int, ...]
    margin: float

    @classmethod
    def of(cls, cell: PlannedCell, refused: Container[str] = ()) -> AttackSelection:
        """The race of a cell with an ensemble, without the members that are ``refused``."""
        assert cell.ensemble is not None
        members = tuple(member for member in cell.members if member.id not in refused)
        return cls(cell, members, cell.ensemble.choose_on(), cell.ensemble.margin)

    def due_trials(self, finals: Finals) -> list[Trial]:
        """The trials to run before the choice, as far as they are known now."""
        missing: list[Trial] = []
        for number, seed in enumerate(self.seeds):
            racing = self._racing(finals, number)
            missing = [(member.id, seed) for member in racing if (member.id, seed) not in finals]
            if missing:
                break
        return missing

    def choice(self, finals: Finals) -> PlannedCell | None:
        """The member with the lowest mean over all selection seeds; None while trials are wanted, or if all failed."""
        if self.due_trials(finals):
            return None
        return min(self._racing(finals, len(self.seeds)), key=lambda member: self._mean(finals, member), default=None)

    def report(self, finals: Finals) -> dict[str, Any]:
        """The choice as stored in the record: every score, the attacks given up, and the possible effect of more attacks.

        Raises nothing; unavailable values are None.
        """
        chosen = self.choice(finals)
        scores = []
        for member in self.members:
            values = [finals[member.id, seed] for seed in self.seeds if (member.id, seed) in finals]
            known = [value for value in values if value is not None]
            scores.append(
                {
                    "attack": str(member.attack),
                    "seeds": len(known),
                    "accuracy": math.fsum(known) / len(known) if known else None,
                    "failed": None in values,
                }
            )
        given_up = [self._first(finals, member) for member in self.members if self._has_partial_scores(finals, member)]
        best = None if chosen is None else self._first(finals, chosen)
        return {
            "ensemble": str(self.cell.ensemble),
            "chosen": None if chosen is None else str(chosen.attack),
            "selection_seeds": list(self.seeds),
            "selection_accuracy": None if chosen is None else self._mean(finals, chosen),
            "scores": sorted(scores, key=lambda one: (one["accuracy"] is None, one["accuracy"])),
            "given_up": len(given_up),
            "closest_given_up": min(given_up) - best if given_up and best is not None else None,
            "saturation": saturation(self._family_minima(finals)),
        }

    def _racing(self, finals: Finals, number: int) -> list[PlannedCell]:
        """The members still in the race after the first ``number`` seeds: not failed, and never beyond the margin."""
        racing = list(self.members)
        for seed in self.seeds[:number]:
            here = {member.id: finals.get((member.id, seed)) for member in racing}
            known = [value for value in here.values() if value is not None]
            worst = min(known, default=0.0)
            racing = [one for one in racing if (value := here[one.id]) is not None and value <= worst + self.margin]
        return racing

    def _has_partial_scores(self, finals: Finals, member: PlannedCell) -> bool:
        """Whether a member was scored but not on every seed."""
        scored = [finals.get((member.id, seed)) is not None for seed in self.seeds]
        return scored[0] and not all(scored)

    def _first(self, finals: Finals, member: PlannedCell) -> float:
        value = finals[member.id, self.seeds[0]]
        assert value is not None
        return value

    def _mean(self, finals: Finals, member: PlannedCell) -> float:
        values = [finals[member.id, seed] for seed in self.seeds]
        return math.fsum(value for value in values if value is not None) / len(values)

    def _family_minima(self, finals: Finals) -> list[float]:
        """The lowest score of each family of attacks, which are the members of one name, on the first seed."""
        lowest: dict[str, float] = {}
        for member in self.members:
            value = finals.get((member.id, self.seeds[0]))
            if value is not None and member.attack is not None:
                lowest[member.attack.name] = min(value, lowest.get(member.attack.name, math.inf))
        return list(lowest.values())


def saturation(scores: Sequence[float]) -> dict[str, Any] | None:
    """How much further the minimum may fall as attacks are added, estimated from the attacks at hand.

    With the k scores sorted, s_1 <= ... <= s_k, the expected minimum of j of them drawn at random is
    ``sum_i s_i C(k-i, j-1) / C(k, j)``. Its last step is what the last attack of a random order brought; the jackknife
    (Quenouille 1956; Robson & Whitlock 1964) takes the curve to its end: ``s_1 - (k-1)/k (s_2 - s_1)``, not below 0. It
    treats the attacks as drawn from a common urn, which they are not, and so is a hint and no bound.

    Returns:
        curve: the expected minimum of 1 ... k attacks; last_gain: the curve's last step; further: by how much the jackknife
        expects more attacks to lower the minimum. None for fewer than 2 scores.
    """
    k = len(scores)
    if k < 2:
        return None
    ordered = sorted(scores)
    curve = [
        math.fsum(score * math.comb(k - i, j - 1) for i, score in enumerate(ordered, start=1)) / math.comb(k, j)
        for j in range(1, k + 1)
    ]
    gap = ordered[1] - ordered[0]
    return {
        "families": k,
        "curve": curve,
        "last_gain": curve[-2] - curve[-1],
        "further": max(0.0, min((k - 1) / k * gap, ordered[0])),
    }
