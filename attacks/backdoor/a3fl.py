"""A3FL (Zhang et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fedguard.attacks.backdoor.base import BackdoorAttack, check_target, draw_batch
from fedguard.contracts import (
    DataView,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Share,
    Sight,
    State,
    Trigger,
)
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedPatch(Trigger):
    """A square in the lower right corner of an image, with fitted values.

    Args:
        pattern: float32 ``[channels, size, size]``.
    """

    name = "learned_patch"

    pattern: Tensor

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        _, height, width = self.pattern.shape
        triggered = x.clone()
        triggered[:, :, -height:, -width:] = self.pattern.to(x.dtype)
        return triggered


@dataclass(frozen=True, kw_only=True)
class A3FL(BackdoorAttack):
    """Fits its trigger in each round, also to a model that has been trained to forget it (adversarially adaptive).

    The pattern p minimizes $L(x + p, target; w) + lambda * L(x + p, target; w')$ over values in range, by signed gradient
    steps. w' is trained from the global model w on triggered inputs with their *true* labels, again after every ``refresh``
    steps, and $lambda = balance * cos(w, w')$. The malicious clients share the pattern and continue from it in their next
    round. Then each trains on partly triggered data, and sends the resulting update.

    ``balance`` and ``share`` are the values of the source's program. It makes 200 passes over a colluder's data with steps
    of 0.01 in normalized inputs; here ``steps`` and ``step`` replace them. It hardens the model in 5 epochs of SGD, uses a
    trigger of 5 x 5, and takes the cosine over the gradients of convolution layers; here the cosine is over all parameters.

    Args:
        target: the class that triggered inputs shall get.
        share: fraction of each malicious client's examples that carry the trigger and the target label.
        epochs: local epochs of a malicious client (FedAvg only; a FedSGD client has one step).
        size: edge of the trigger, in pixels.
        batch: number of examples for fitting the trigger, drawn in each round from all malicious clients.
        steps: steps on the pattern in each round.
        step: length of a step in each pixel, as a share of the range of values.
        refresh: steps on the pattern between two trainings of w'.
        unlearn_steps, unlearn_lr: full-batch steps of a training of w', and their step size.
        balance: $lambda_0$, the weight of w'.
    """

    name = "a3fl"
    source = "Zhang et al., A3FL: Adversarially Adaptive Backdoor Attacks to Federated Learning, NeurIPS 2023"
    needs = (Sight.OWN_DATA | Sight.MODEL,)
    every_round = True

    share: Share = 0.25
    size: PositiveInt = 2
    batch: PositiveInt = 64
    steps: PositiveInt = 20
    step: PositiveFloat = 0.05
    refresh: PositiveInt = 5
    unlearn_steps: NonNegativeInt = 5
    unlearn_lr: PositiveFloat = 0.1
    balance: NonNegativeFloat = 0.01

    def current_trigger(self, state: State) -> Trigger | None:
        return LearnedPatch(pattern=state["pattern"]) if "pattern" in state else None

    def prepare(self, view: DataView) -> State:
        if len(view.shape) != 3 or min(view.shape[1:]) < self.size:
            raise ConfigError(
                f"{self.name}(size={self.size}) needs images of at least {self.size} x {self.size} pixels; "
                f"got inputs of shape {list(view.shape)}. Use image data or a smaller trigger."
            )
        check_target(self.name, self.target, view)
        low, high = view.value_range
        examples = draw_batch(view, self.batch)
        target = torch.full((len(examples),), self.target)
        pattern = view.state.get("pattern", torch.full((view.shape[0], self.size, self.size), (low + high) / 2))
        models = [(1.0, view.model)]
        for step in range(self.steps):
            if step % self.refresh == 0:
                hardened = self._unlearn_trigger(
                    view, LearnedPatch(pattern=pattern).apply(examples.x, (low, high)), examples.y
                )
                weight = self.balance * float(cosine_similarity(hardened, view.model, dim=0))
                models = [(1.0, view.model), (weight, hardened)]
            at = pattern.clone().requires_grad_()
            triggered = LearnedPatch(pattern=at).apply(examples.x, (low, high))
            losses = [weight * cross_entropy(view.predict(model, triggered), target) for weight, model in models]
            (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), at)
            # Signed steps, as in PGD: the gradient's size depends on how far the model has learned the backdoor
            pattern = (pattern - self.step * (high - low) * gradient.sign()).clamp(low, high)
        return {**view.state, "pattern": pattern}

    def _unlearn_trigger(self, view: DataView, x: Tensor, y: Tensor) -> Tensor:
        """w': the global model after training on triggered inputs with their true labels."""
        model = view.model
        for _ in range(self.unlearn_steps):
            at = model.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(cross_entropy(view.predict(at, x), y), at)
            model = model - self.unlearn_lr * gradient
        return model
