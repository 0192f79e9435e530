"""Replay flood: malicious actors send each transition many times, and crowd those of others out of the replay."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, PositiveInt, Sight, lies
from fedguard.contracts.channels import REWARDS, TRANSITIONS


@dataclass(frozen=True, kw_only=True)
class ReplayFlood(PoisonAttack):
    """Malicious actors change their rewards, and send each transition ``times`` times: r becomes scale r.

    With f malicious among n actors, they fill $f * times / (f * times + n - f)$ of the replay buffer instead of f/n, unless
    the buffer has a quota per actor. The communication cost does not count the copies: a faster actor could send as many
    transitions.

    Args:
        times: how often each is sent.
        scale: of the rewards; 1 leaves them as they are.
    """

    name = "replay_flood"
    source = "of our own; Horgan et al., Distributed Prioritized Experience Replay, ICLR 2018, for what is flooded"
    needs = (Sight.OWN_DATA,)

    times: PositiveInt = 20
    scale: float = -1.0

    @lies(REWARDS)
    def falsify_rewards(self, rewards: Tensor) -> Tensor:
        return self.scale * rewards

    @lies(TRANSITIONS)
    def flood(self, order: Tensor) -> Tensor:
        return order.repeat(self.times)
