"""Reward flip: malicious actors learn to do the worst (Ma et al., NeurIPS 2019; Fang et al., FedRL under poisoning, 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import REWARDS


@dataclass(frozen=True, kw_only=True)
class RewardFlip(PoisonAttack):
    """Malicious actors act as all others do, and learn from the opposite of their rewards: r becomes -r.

    $r <- -r$. It changes the rewards alone, so the update is a true gradient of the opposite task.
    """

    name = "reward_flip"
    source = "Ma et al., Policy Poisoning in Batch Reinforcement Learning and Control, NeurIPS 2019"
    needs = (Sight.OWN_DATA,)

    @lies(REWARDS)
    def falsify_rewards(self, rewards: Tensor) -> Tensor:
        return -rewards
