"""Softmax regression."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import nn

from fedguard.contracts import Model


@dataclass(frozen=True, kw_only=True)
class Softmax(Model):
    """One dense layer with bias from the inputs to the logits: convex, and the yardstick of the field."""

    name = "softmax"
    source = "multinomial logistic regression"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
