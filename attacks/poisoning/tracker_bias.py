"""A steady push of the trackers, which never forget it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView, PositiveFloat, lies
from fedguard.contracts.channels import TRACKERS


@dataclass(frozen=True, kw_only=True)
class TrackerBias(PoisonAttack):
    """Sends models as honest nodes do, and trackers that are pushed against the mean update.

    The trackers of `dsgt` and `detag` conserve the sum over all nodes from round to round, so a push of constant length
    accumulates over the rounds. The node sends $b = mu$ in place of a model and $b = -scale * mu$ in place of a tracker,
    with mu the mean of the benign sample.

    Args:
        scale: strength.
    """

    name = "tracker_bias"
    source = "own; what gradient tracking keeps is of Pu and Nedic, 2021"
    needs = BENIGN_SAMPLE

    scale: PositiveFloat = 1.0

    def craft(self, view: PoisonView) -> Tensor:
        return view.benign.mean(0).expand(view.f, -1)

    @lies(TRACKERS)
    def bias_trackers(self, trackers: Tensor, view: PoisonView) -> Tensor:
        return (-self.scale * view.benign.mean(0)).expand(view.f, -1)
