"""A reading of one sensor that calls a backdoor (after Kiourti et al., DAC 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import NonNegativeInt, Trigger
from fedguard.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Reading(Trigger):
    """One number of the input shows a set value: what a tampered sensor says.

    The default is a cart position beyond the end of CartPole's track (2.4), which occurs only if the sensor is tampered
    with.

    Args:
        index: which number, from 0, of an input that is flattened.
        value: what it shows, in the units of the input.
    """

    name = "reading"
    source = "of our own; Kiourti et al., TrojDRL, DAC 2020, have a patch of pixels in its place"

    index: NonNegativeInt = 0
    value: float = 3.0

    def apply(self, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        if self.index >= x.shape[1:].numel():
            raise ConfigError(
                f"reading(index={self.index}): expected an index below {x.shape[1:].numel()}, inputs are of shape "
                f"{list(x.shape[1:])}; got {self.index}."
            )
        shown = x.clone()
        shown.flatten(1)[:, self.index] = self.value
        return shown
