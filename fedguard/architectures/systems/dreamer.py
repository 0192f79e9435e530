"""Dreamer: actors fill a replay, from which a learner models the world, and learns to act in what it imagines."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.architectures.systems.apex import ApeX
from fedguard.contracts.channels import TRANSITIONS


@dataclass(frozen=True, kw_only=True)
class Dreamer(ApeX):
    """A world model at the learner: as `apex`, but actors send sequences of steps without priorities.

    $w <- w + eta S(-g)$ whenever sequences of an actor have come, where g is the gradient of a batch that the learner draws
    from its replay (`training.algorithm: dreaming`): of a model of the world, of the actor that acts in it, and of its critic.

    Each lie becomes part of the world model in which all actors are trained. Sequences are drawn uniformly, so no actor can
    claim to be drawn more often; ``quota`` limits actors that flood the replay.
    """

    name = "dreamer"
    source = "Hafner et al., Dream to Control: Learning Behaviors by Latent Imagination, ICLR 2020"
    channels = frozenset({TRANSITIONS})
    wanted = "dreaming"

    @property
    def more_rows(self) -> str:
        return "Here each aggregate is one batch of the replay: use mean, with quota of dreaming, or impala."
