"""Base of the backdoor attacks: malicious clients train on examples of which a share carries a trigger."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.contracts import (
    DataView,
    Examples,
    LocalPlan,
    NonNegativeInt,
    PoisonAttack,
    PositiveInt,
    Share,
    Sight,
    State,
    Trigger,
)
from fedguard.contracts.return_checks import check_tensor_return
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class BackdoorAttack(PoisonAttack):
    """Trains on the malicious clients' examples, of which a share carries a trigger and the target label.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
    """

    goal = "backdoor"
    needs = (Sight.OWN_DATA,)

    target: NonNegativeInt = 0
    share: Share = 0.5
    epochs: PositiveInt = 5

    def current_trigger(self, state: State) -> Trigger | None:
        """The trigger in its current form; None if it is not fitted yet."""
        raise NotImplementedError

    def poison(self, examples: Examples, view: DataView) -> Examples:
        check_target(self.name, self.target, view)
        whole = self.current_trigger(view.state)
        assert whole is not None
        trigger = whole.part(view.position)
        able = trigger.selects(examples, view.value_range)
        order = torch.randperm(len(examples), generator=view.rng.torch())
        # Examples that can carry the trigger come first, in random order
        order = order[able[order].logical_not().long().argsort(stable=True)]
        chosen = order[: max(1, round(self.share * len(examples)))]
        x, y = examples.x.clone(), examples.y.clone()
        # If one of the chosen cannot carry the trigger, all are replaced by inputs that can, from all malicious clients
        own = x[chosen] if able[chosen].all() else carriers(self.name, trigger, self.target, len(chosen), view)
        x[chosen] = check_tensor_return(trigger, "apply", trigger.apply(own, view.value_range), own.shape)
        y[chosen] = self.target
        return Examples(x, y)

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        return plan if plan.epochs is None else replace(plan, epochs=self.epochs)

    def backdoor(self, state: State) -> tuple[Trigger, int] | None:
        trigger = self.current_trigger(state)
        return None if trigger is None else (trigger, self.target)


def check_target(name: str, target: int, view: DataView) -> None:
    """Raise `ConfigError` unless the data have this class."""
    require(target < view.classes, f"{name}: target: expected a class below {view.classes}; got {target}.")


def carriers(name: str, trigger: Trigger, target: int, count: int, view: DataView) -> Tensor:
    """Inputs of other classes that can carry the trigger, from all malicious clients; repeated where these are too few."""
    pool = pool_examples(view)
    (able,) = (trigger.selects(pool, view.value_range) & (pool.y != target)).nonzero(as_tuple=True)
    require(
        len(able) > 0,
        f"{name}: trigger: expected one that some of the malicious clients' examples can carry; {trigger} selects none outside "
        f"class {target}. Choose a more common feature, another target or more malicious clients.",
    )
    drawn = torch.randperm(len(able), generator=view.rng.child("carriers").torch())
    return pool.x[able[drawn[torch.arange(count) % len(able)]]]


def draw_batch(view: DataView, count: int) -> Examples:
    """Some of the malicious clients' examples, drawn anew in each round."""
    pool = pool_examples(view)
    return pool[torch.randperm(len(pool), generator=view.rng.child("batch").torch())[:count]]


def pool_examples(view: DataView) -> Examples:
    """The examples of all malicious clients in one."""
    return Examples(torch.cat([part.x for part in view.pool]), torch.cat([part.y for part in view.pool]))
