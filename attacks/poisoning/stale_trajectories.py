"""Stale trajectories: malicious actors tell of what they met with long ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedguard.contracts import PoisonAttack, PositiveInt, Rollout, Sight
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class StaleTrajectories(PoisonAttack):
    """Malicious actors act on, and send the rollout of ``age`` rollouts ago, or their first where they have not so many.

    $tau_t <- tau_max(t - age, 1)$, with the probabilities of then. An ``age`` that is longer than the training replays one
    rollout for ever. Each was met with, so nothing in it is false but when; V-trace gives weight only to what the model of now
    might have done as well. A learner that works the probabilities out by itself, from the model that it sent, takes the old
    actions for those of that model.

    Args:
        age: in rollouts of the actor.
    """

    name = "stale_trajectories"
    source = "of our own; Espeholt et al., ICML 2018, for what corrects trajectories that are a little old"
    needs = (Sight.OWN_DATA,)

    age: PositiveInt = 100

    def recalls(self) -> int:
        return self.age

    def retell(self, rollout: Rollout, past: Sequence[Rollout], choices: int, rng: Rng) -> Rollout:
        return past[0] if past else rollout
