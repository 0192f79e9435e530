"""False claims of availability; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import DataView, PoisonAttack, Sight, lies
from fedguard.contracts.channels import PROMISES


@dataclass(frozen=True, kw_only=True)
class NoShow(PoisonAttack):
    """Says that it is there, is asked to train, and never reports.

    The device checks in whether it is available or not, takes the place of an honest device, and the server waits for it.
    If the server selects o times as many devices as it needs and a share f never reports, a round is complete as long as $o
    (1 - f) >= 1$. Otherwise it lasts to the end of its report window, and the server abandons it if $o (1 - f)$ is below
    the minimum. No false update reaches the rule, so no rule helps.
    """

    name = "no_show"
    source = "FedGuard; the report window is of Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019"
    needs = (Sight.OWN_DATA,)

    @lies(PROMISES)
    def keep_promise(self, reports: bool) -> bool:
        return False

    def silent(self, view: DataView) -> bool:
        return True
