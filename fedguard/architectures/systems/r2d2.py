"""R2D2: Ape-X with a network that remembers, and a replay of sequences (Kapturowski et al., ICLR 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.architectures.systems.apex import ApeX
from fedguard.contracts.channels import MEMORIES


@dataclass(frozen=True, kw_only=True)
class R2D2(ApeX):
    """Recurrent replay: as `apex`, but actors send sequences of steps, with the recurrent state before the first.

    $w <- w + eta S(-g)$ whenever sequences of an actor have come, where g is the gradient of a batch that the learner draws
    from its replay (`training.algorithm: recurrent_dqn`).

    The remembered state is a claim of the actor, like its priorities; burn-in reduces its influence.
    """

    name = "r2d2"
    source = "Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning, ICLR 2019"
    channels = ApeX.channels | {MEMORIES}
    wanted = "recurrent_dqn"
