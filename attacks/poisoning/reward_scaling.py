"""Reward scaling: malicious actors learn from rewards of another size, or of the opposite sign and another size."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import REWARDS


@dataclass(frozen=True, kw_only=True)
class RewardScaling(PoisonAttack):
    """Malicious actors learn from rewards that are so many times what they are: r becomes s r.

    $r <- s r$. With a large s their gradients are the longest of all; s = 0 removes all reward signal; s = -1 is
    `reward_flip`.

    Args:
        scale: s.
    """

    name = "reward_scaling"
    source = "Ma et al., Policy Poisoning in Batch Reinforcement Learning and Control, NeurIPS 2019"
    needs = (Sight.OWN_DATA,)

    scale: float = -10.0

    @lies(REWARDS)
    def falsify_rewards(self, rewards: Tensor) -> Tensor:
        return self.scale * rewards
