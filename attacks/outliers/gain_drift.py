"""Gain drift: a sensor that loses its calibration from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from fedguard.contracts import DataView, Examples, PoisonAttack, Sight


@dataclass(frozen=True, kw_only=True)
class GainDrift(PoisonAttack):
    """The sensors of the faulty clients drift: their inputs are multiplied by a gain that moves with the rounds.

    In round t (from 1) x becomes $g_t * x$ with $g_t = (1 + drift)^(t - 1)$, so the sensor starts calibrated in round 1,
    whenever the fault begins to act. It saturates: values outside the data's range are clamped to its ends.

    Args:
        drift: relative change of the gain per round, above -1; negative for a sensor that fades. The default doubles
            the gain in 14 rounds.
    """

    name = "gain_drift"
    source = "a fault seen in practice; cf. Ni et al., Sensor Network Data Fault Types, ACM TOSN 2009 (gain, drift, clipping)"
    goal = "fault"
    needs = (Sight.OWN_DATA,)
    every_round = True

    drift: Annotated[float, Gt(-1)] = 0.05

    def poison(self, examples: Examples, view: DataView) -> Examples:
        # Long before e^60 everything is saturated, and beyond float32 a gain would turn 0 into NaN.
        gain = math.exp(min((view.round - 1) * math.log1p(self.drift), 60.0))
        low, high = view.value_range
        return examples.replace(x=(examples.x * gain).clamp(low, high))
