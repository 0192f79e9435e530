"""Semantic backdoor (Bagdasaryan et al., AISTATS 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedguard.contracts import Examples, Fraction, Trigger


@dataclass(frozen=True, kw_only=True)
class SemanticTrigger(Trigger):
    """A natural feature in place of a pattern: inputs that are bright, or dark, as a whole. Nothing is added to them.

    An input has the feature if its mean value, as a share of the range of values, is above ``level`` (``bright``) or below
    it (``dark``). The source picks features by eye, such as the color of a car; brightness replaces them here because it is
    defined for any input.

    Args:
        feature: which inputs are meant.
        level: the mean value from which on an input counts as bright, in [0, 1]; the default makes about one in seven of
            the handwritten digits bright. Other data need their own.
    """

    name = "semantic"
    source = "Bagdasaryan et al., How To Backdoor Federated Learning, AISTATS 2020"

    feature: Literal["bright", "dark"] = "bright"
    level: Fraction = 0.34

    def selects(self, examples: Examples, value_range: tuple[float, float]) -> Tensor:
        low, high = value_range
        mean = (examples.x.flatten(1).mean(1) - low) / (high - low)
        return mean > self.level if self.feature == "bright" else mean < self.level

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        return x.clone()
