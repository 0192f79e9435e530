"""Alternating minimization (Bhagoji et al., ICML 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedguard.attacks.backdoor.base import carriers, check_target
from fedguard.attacks.backdoor.triggers.pixel_patch import PixelPatch
from fedguard.contracts import (
    DataView,
    LocalPlan,
    NonNegativeFloat,
    NonNegativeInt,
    PoisonAttack,
    PositiveFloat,
    PositiveInt,
    Sight,
    State,
    Trigger,
)
from fedguard.contracts.return_checks import check_tensor_return


@dataclass(frozen=True, kw_only=True)
class AlternatingMinimization(PoisonAttack):
    """Alternates steps for the backdoor, boosted, with steps that look honest.

    Honest step: SGD on the malicious client's clean examples with the loss $L + rho * |w - w_0 - d|$, where d is an
    estimate of the benign update. Then a step for the backdoor: $w <- w - lr * boost * grad L(triggered examples, target)$.
    The client sends $w - w_0$. The source targets a few single examples, here the targets are triggered examples. The
    source takes for d the mean update of the round before; here d is the mean update that honest training would give the
    malicious clients in this round.

    Args:
        trigger: activates the backdoor.
        target: the class that triggered inputs shall get.
        count: number of triggered examples, drawn in each round from all malicious clients.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step of each kind).
        boost: factor on the steps for the backdoor, to outweigh the honest clients.
        rho: weight of the distance from the benign update.
    """

    name = "alternating_minimization"
    source = "Bhagoji et al., Analyzing Federated Learning through an Adversarial Lens, ICML 2019"
    goal = "backdoor"
    needs = (Sight.OWN_DATA | Sight.MODEL,)

    trigger: Trigger = field(default_factory=PixelPatch)
    target: NonNegativeInt = 0
    count: PositiveInt = 32
    epochs: PositiveInt = 5
    boost: PositiveFloat = 5.0
    rho: NonNegativeFloat = 1e-4

    def plan(self, plan: LocalPlan, view: DataView) -> LocalPlan:
        check_target(self.name, self.target, view)
        predict, benign = view.predict, view.clean().mean(0)
        x = carriers(self.name, self.trigger, self.target, self.count, view)
        x = check_tensor_return(self.trigger, "apply", self.trigger.apply(x, view.value_range), x.shape)
        y = torch.full((len(x),), self.target)

        def honest(parameters: Tensor, start: Tensor, gradient: Tensor) -> Tensor:
            apart = parameters - start - benign
            # The gradient of |v| is v / |v|; it is not defined at the start of a training if d is 0, hence the clamp
            pull: Tensor = self.rho * apart / apart.norm().clamp(min=1e-12)
            return gradient + pull

        def malicious(parameters: Tensor, _start: Tensor) -> Tensor:
            at = parameters.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(cross_entropy(predict(at, x), y), at)
            return parameters - plan.lr * self.boost * gradient

        epochs = None if plan.epochs is None else self.epochs
        return replace(plan, epochs=epochs, adjust=honest, project=malicious)

    def backdoor(self, state: State) -> tuple[Trigger, int]:
        return self.trigger, self.target
