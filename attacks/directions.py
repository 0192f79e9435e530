"""The harmful directions of Shejwalkar & Houmansadr (NDSS 2021), and the choice among them.

The source trains with each direction and reports the worst. Here each round chooses the direction with the least progress
``<R, mu> / |mu|^2`` of the rule. The deviation ``|R - mu|`` is a poor criterion: if clients differ, -sigma deviates most, but
sideways.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from torch import Tensor

from fedguard.attacks.search import RuleOracle, spread
from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, Sight
from fedguard.errors import PreconditionError

#: A direction of the source by name, or the most harmful one of each round.
Direction = Literal["chosen", "std", "unit", "sign"]
NAMED: tuple[Direction, ...] = ("std", "unit", "sign")


def harmful(name: Direction, benign: Tensor) -> Tensor:
    """float32 ``[d]``: p at the benign updates (float32 ``[b, d]``), of any length: -sigma, -mu or -sign(mu)."""
    if name == "std":
        return -spread(benign)
    mean = benign.mean(0)
    return -mean if name == "unit" else -mean.sign()


@dataclass(frozen=True, kw_only=True)
class DirectionAttack(PoisonAttack):
    """Base of the attacks that step from the mean of the benign updates along one of the source's directions."""

    direction: Direction = "chosen"

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The candidate directions."""
        return NAMED if self.direction == "chosen" else (self.direction,)

    def siblings(self) -> tuple[Self, ...]:
        return tuple(replace(self, direction=name) for name in NAMED if name != self.direction)


@dataclass(frozen=True, kw_only=True)
class LongestStep(DirectionAttack):
    """Base of the attacks with the longest step that a bound on distances allows; a granted rule only chooses the direction."""

    needs = (Sight.HONEST_UPDATES | Sight.RULE, *BENIGN_SAMPLE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction != "chosen":
            object.__setattr__(self, "needs", BENIGN_SAMPLE)  # nothing is left to ask the rule

    @abstractmethod
    def step(self, benign: Tensor, direction: Tensor) -> Tensor:
        """float32 ``[d]``: the longest step that the bound allows along a direction of any length; 0 for a direction of 0."""

    def craft(self, view: PoisonView) -> Tensor:
        benign = view.benign
        steps = [self.step(benign, harmful(name, benign)) for name in self.directions]
        return (benign.mean(0) + most_harmful(view, steps)).expand(view.f, -1)


def most_harmful(view: PoisonView, steps: Sequence[Tensor]) -> Tensor:
    """The step from the mean mu of the benign updates (float32 ``[d]`` each) that leaves the least progress.

    If the rule is granted, it is asked. Otherwise the choice assumes the mean, where a step p reduces the progress by ``f/n
    |<p, mu>| / |mu|^2``. Of equal steps the first is taken.
    """
    if len(steps) > 1 and Sight.RULE in view.granted and len(view.honest):
        asked = RuleOracle(view, steps, "progress")
        rows = [asked.mean + asked.unit(len(view.honest) + i) for i in range(len(steps))]
        try:
            best = asked.best(rows)
            return next(step for row, step in zip(rows, steps, strict=True) if row is best)
        except PreconditionError:
            pass  # too few updates for the rule: the server abandons the round, whatever is sent
    mean = view.benign.mean(0)
    return min(steps, key=lambda step: float(step.double() @ mean.double()))
