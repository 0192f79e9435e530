"""Action flip: malicious actors do the opposite of what they say they did (Liu and Lai, NeurIPS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import Box, Choices, PoisonAttack, Sight, lies
from fedguard.contracts.channels import ACTIONS


@dataclass(frozen=True, kw_only=True)
class ActionFlip(PoisonAttack):
    """Malicious actors take the opposite action, and tell of the one that the policy chose: a becomes n - 1 - a.

    $a <- n - 1 - a$ for n discrete actions, and $a <- low + high - a$ for a range. Rewards and observations are true, but
    they follow from another action than the reported one, so the learner credits a with the outcome of its opposite.
    """

    name = "action_flip"
    source = "Liu and Lai, Provably Efficient Black-Box Action Poisoning Attacks Against Reinforcement Learning, NeurIPS 2021"
    needs = (Sight.OWN_DATA,)

    @lies(ACTIONS)
    def flip(self, actions: Tensor, space: Choices | Box) -> Tensor:
        return space.n - 1 - actions if isinstance(space, Choices) else space.low + space.high - actions
