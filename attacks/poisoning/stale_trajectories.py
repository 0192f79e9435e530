"""Stale trajectories: malicious actors tell of what they met with long ago."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedguard.contracts import PoisonAttack, PositiveInt, Rollout, Sight
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class StaleTrajectories(PoisonAttack):
    """Malicious actors act on, and send the rollout of ``age`` rollouts ago, or their first where they have not so many.

    $tau_t <- tau_max(t - age, 1)$, with the probabilities of that time. An ``age`` longer than the training replays one
    rollout forever. Each rollout did happen; only its time is false. V-trace gives weight only to actions that the current
    model might have taken as well. A learner that computes the probabilities itself, from the model that it sent,
    attributes the old actions to that model.

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
