"""A stuck sensor: the same reading over and over."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.contracts import DataView, Examples, PoisonAttack, Share, Sight


@dataclass(frozen=True, kw_only=True)
class StuckSensor(PoisonAttack):
    """The sensor of each faulty client has frozen: it repeats one of its own readings while the labels go on.

    $x_i = x_j$ for every example i recorded after the sensor froze, where j is one of the client's own examples, drawn
    once. It is a frozen frame and not a constant color: a stuck sensor usually holds a valid value, so no check of the
    value range finds it. The labels are right for what the sensor should have recorded.

    Args:
        share: fraction of the client's examples recorded after the sensor froze, rounded to whole examples, at least one;
            these are drawn once.
    """

    name = "stuck_sensor"
    source = "a fault seen in practice; cf. Ni et al., Sensor Network Data Fault Types, ACM TOSN 2009 (stuck-at faults)"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    share: Share = 1.0

    def poison(self, examples: Examples, view: DataView) -> Examples:
        order = torch.randperm(len(examples), generator=view.rng.torch())
        frozen = order[: max(1, round(self.share * len(examples)))]
        x = examples.x.clone()
        x[frozen] = examples.x[frozen[0]]
        return examples.replace(x=x)
