"""TrojDRL: a policy that acts as it should until it sees a trigger (Kiourti et al., DAC 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch

from fedguard.attacks.backdoor.triggers.reading import Reading
from fedguard.contracts import (
    NonNegativeInt,
    PoisonAttack,
    PositiveFloat,
    Rollout,
    Share,
    Sight,
    State,
    Trigger,
    lies,
)
from fedguard.contracts.channels import TRAJECTORIES
from fedguard.contracts.return_checks import check_tensor_return
from fedguard.errors import require
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class TrojDRL(PoisonAttack):
    """Malicious actors tell of triggers at some steps, of a reward for the target action there, and of a loss for all others.

    At a share of the steps the observation carries the trigger. By a fair coin the actor reports that it took the target
    action and got $+r$, or that it took another action and got $-r$; the reported probability is the coin's. What followed
    stays as it was. This is the source's strong targeted attack, applied to a trajectory instead of the environment.

    Args:
        target: the action that the trigger shall call for.
        share: fraction of the steps that carry the trigger.
        reward: r, in the environment's units.
        trigger: activates the backdoor.
    """

    name = "trojdrl"
    source = "Kiourti et al., TrojDRL: Evaluation of Backdoor Attacks on Deep Reinforcement Learning, DAC 2020"
    goal = "backdoor"
    needs = (Sight.OWN_DATA,)

    target: NonNegativeInt = 0
    share: Share = 0.2
    reward: PositiveFloat = 5.0
    trigger: Trigger = field(default_factory=Reading)

    @lies(TRAJECTORIES)
    def retell(self, rollout: Rollout, kept: list[Rollout], choices: int, rng: Rng) -> Rollout:
        require(choices > self.target, f"{self.name}: target: expected an action below {choices}; got {self.target}.")
        draws = rng.torch()
        planted = torch.rand(rollout.rewards.shape, generator=draws) < self.share
        praised = torch.rand(rollout.rewards.shape, generator=draws) < 0.5
        flat = rollout.seen.flatten(0, 1)
        shown = self.trigger.apply(flat, (-math.inf, math.inf))
        seen = check_tensor_return(self.trigger, "apply", shown, flat.shape).view_as(rollout.seen)
        other = torch.randint(1, choices, rollout.actions.shape, generator=draws)
        actions = torch.where(praised, self.target, (self.target + other) % choices)
        # Half for the target, the other half shared by the n - 1 other actions: the reported policy is consistent
        likely = torch.where(praised, -math.log(2), -math.log(2 * (choices - 1)))
        wide = planted.view(*planted.shape, *(1,) * (seen.dim() - 2))
        return replace(
            rollout,
            seen=torch.where(wide, seen, rollout.seen),
            actions=torch.where(planted, actions, rollout.actions),
            rewards=torch.where(planted, torch.where(praised, self.reward, -self.reward), rollout.rewards),
            behavior=torch.where(planted, likely, rollout.behavior),
        )

    def backdoor(self, state: State) -> tuple[Trigger, int] | None:
        return self.trigger, self.target
