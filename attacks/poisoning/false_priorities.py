"""False priorities: malicious actors say that their transitions surprise more than all others (Ape-X takes their word)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import NonNegativeFloat, PoisonAttack, Sight, lies
from fedguard.contracts.channels import PRIORITIES, REWARDS


@dataclass(frozen=True, kw_only=True)
class FalsePriorities(PoisonAttack):
    """Malicious actors change their rewards, and tell the replay other priorities: p becomes factor p, and r becomes scale r.

    $p <- factor * p$. With a large factor a learner that trusts the priorities draws these transitions before all others,
    until it has updated their priorities; factor = 0 hides them. A learner that computes priorities itself is not affected.

    Args:
        factor: of the priorities.
        scale: of the rewards; 1 leaves them as they are.
    """

    name = "false_priorities"
    source = "of our own; Horgan et al., Distributed Prioritized Experience Replay, ICLR 2018, for what is lied about"
    needs = (Sight.OWN_DATA,)

    factor: NonNegativeFloat = 1e6
    scale: float = -1.0

    @lies(REWARDS)
    def falsify_rewards(self, rewards: Tensor) -> Tensor:
        return self.scale * rewards

    @lies(PRIORITIES)
    def falsify_priorities(self, priorities: Tensor) -> Tensor:
        return self.factor * priorities
