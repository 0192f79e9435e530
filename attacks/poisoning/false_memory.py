"""False memory: malicious actors say that their networks remembered something else (R2D2 stores what they say)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import MEMORIES, REWARDS


@dataclass(frozen=True, kw_only=True)
class FalseMemory(PoisonAttack):
    """Malicious actors change their rewards, and what they say they remembered: r becomes scale r, h becomes factor h.

    $h <- factor * h$ for the recurrent state before each sequence, from which a learner unrolls its own network. A longer
    burn-in reduces the effect; a learner that starts from a zero state is not affected. The sequence's priority is computed
    from the false state.

    Args:
        factor: of the recurrent state.
        scale: of the rewards; 1 leaves them as they are.
    """

    name = "false_memory"
    source = (
        "of our own; Kapturowski et al., Recurrent Experience Replay in Distributed RL, ICLR 2019, for what is stored"
    )
    needs = (Sight.OWN_DATA,)

    factor: float = -10.0
    scale: float = -1.0

    @lies(REWARDS)
    def falsify_rewards(self, rewards: Tensor) -> Tensor:
        return self.scale * rewards

    @lies(MEMORIES)
    def falsify_memory(self, memory: Tensor) -> Tensor:
        return self.factor * memory
