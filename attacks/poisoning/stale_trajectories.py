"""Stale trajectories: malicious actors tell of what they met with long ago."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import PoisonAttack, PositiveInt, Rollout, Sight, lies
from fedguard.contracts.channels import TRAJECTORIES
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

    @lies(TRAJECTORIES)
    def retell(self, rollout: Rollout, kept: list[Rollout], choices: int, rng: Rng) -> Rollout:
        kept.append(rollout)
        return kept.pop(0) if len(kept) > self.age else kept[0]
