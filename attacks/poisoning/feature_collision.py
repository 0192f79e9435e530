"""Feature collision, a clean-label attack (Shafahi et al., NeurIPS 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import (
    DataView,
    Examples,
    NonNegativeFloat,
    NonNegativeInt,
    PoisonAttack,
    PositiveFloat,
    PositiveInt,
    Share,
    Sight,
)
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class FeatureCollision(PoisonAttack):
    """Makes inputs of one class look like another to the model, with labels that stay right: "Poison Frogs".

    For an input b of the class ``base`` and an input t of the class ``victim``, it minimizes $|f(p) - f(t)|^2 + beta |p -
    b|^2$ over p in range, from $p = b$, by forward-backward splitting: $p' = p - lr * grad |f(p) - f(t)|^2$, then $p = (p'
    + lr * beta * b) / (1 + lr * beta)$. The poison p keeps the label ``base``, so the model learns this label for inputs
    with the features of ``victim``. Malicious clients repeat this in each round; a client without examples of ``base``
    trains honestly. The source takes the penultimate layer for f and aims at one known test input. Here f is the logits of
    the global model. Nobody sees test inputs, so the target is the whole class ``victim``: its accuracy among the record's
    per-class accuracies shows the effect.

    Args:
        base: the class whose examples are changed, and whose label they keep.
        victim: the class that the model shall classify as ``base``.
        share: fraction of a malicious client's examples of ``base`` that are changed.
        beta: how closely a poison stays to its input.
        steps: steps for each poison.
        lr: their size, in units of the input per gradient.
    """

    name = "feature_collision"
    source = "Shafahi et al., Poison Frogs! Targeted Clean-Label Poisoning Attacks on Neural Networks, NeurIPS 2018"
    needs = (Sight.OWN_DATA | Sight.MODEL,)
    every_round = True

    base: NonNegativeInt = 0
    victim: NonNegativeInt = 1
    share: Share = 1.0
    beta: NonNegativeFloat = 0.25
    steps: PositiveInt = 20
    lr: PositiveFloat = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.base != self.victim,
            f"feature_collision: base, victim: expected two different classes; got {self.base} and {self.victim}.",
        )

    def poison(self, examples: Examples, view: DataView) -> Examples:
        for label in (self.base, self.victim):
            require(label < view.classes, f"feature_collision: expected classes below {view.classes}; got {label}.")
        victims = torch.cat([part.x[part.y == self.victim] for part in view.pool])
        bases = sum(int((part.y == self.base).sum()) for part in view.pool)
        require(
            len(victims) > 0 and bases > 0,
            f"feature_collision: expected malicious clients with examples of the classes {self.base} and {self.victim}; got "
            f"{bases} and {len(victims)}. Choose other classes or more malicious clients.",
        )
        (rows,) = (examples.y == self.base).nonzero(as_tuple=True)
        if not len(rows):
            return examples
        draw = torch.randperm(len(rows), generator=view.rng.child("bases").torch())
        rows = rows[draw[: max(1, round(self.share * len(rows)))]]
        aims = torch.randint(len(victims), (len(rows),), generator=view.rng.child("victims").torch())
        x = examples.x.clone()
        x[rows] = self._collide_features(x[rows], victims[aims], view)
        return examples.replace(x=x)

    def _collide_features(self, base: Tensor, aim: Tensor, view: DataView) -> Tensor:
        with torch.no_grad():
            features = view.predict(view.model, aim)
        poison = base
        for _ in range(self.steps):
            at = poison.clone().requires_grad_()
            apart = (view.predict(view.model, at) - features).square().sum()
            (gradient,) = torch.autograd.grad(apart, at)
            poison = poison - self.lr * gradient
            # The proximal step has a closed form, since the penalty is quadratic; the clamp keeps p a valid input
            poison = ((poison + self.lr * self.beta * base) / (1 + self.lr * self.beta)).clamp(*view.value_range)
        return poison
