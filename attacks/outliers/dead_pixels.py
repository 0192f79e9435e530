"""Dead pixels: inputs some of whose positions always read the lowest value."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedguard.contracts import DataView, Examples, PoisonAttack, Share, Sight


@dataclass(frozen=True, kw_only=True)
class DeadPixels(PoisonAttack):
    """The sensor of each faulty client has dead positions: in all its inputs they hold the lowest value there is.

    The positions are drawn once for each client, without replacement, and stay the same. In images [C, H, W] a position is
    a pixel, dead in all its channels; in inputs of another shape it is one number.

    Args:
        share: fraction of the positions that are dead, rounded to whole positions, at least one.
    """

    name = "dead_pixels"
    source = "a fault seen in practice; cf. Ni et al., Sensor Network Data Fault Types, ACM TOSN 2009 (stuck-at faults)"
    goal = "fault"
    needs = (Sight.OWN_DATA,)

    share: Share = 0.2

    def poison(self, examples: Examples, view: DataView) -> Examples:
        channels = view.shape[0] if len(view.shape) == 3 else 1
        x = examples.x.reshape(len(examples), channels, -1).clone()
        positions = x.shape[2]
        drawn = torch.randperm(positions, generator=view.rng.torch())
        x[:, :, drawn[: max(1, round(self.share * positions))]] = view.value_range[0]
        return examples.replace(x=x.reshape(examples.x.shape))
