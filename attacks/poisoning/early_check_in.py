"""Check-ins before the assigned time; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import lies
from fedguard.contracts.channels import CHECK_IN


@dataclass(frozen=True, kw_only=True)
class EarlyCheckIn(SignFlip):
    """Checks in at once, whatever it was told, and reverses the mean update.

    A server with pace steering assigns each device a time to come back, but keeps no record of it, so it accepts every
    device that checks in. Malicious devices check in at the beginning of each selection. With F malicious devices and a
    round that selects A devices, they make up $min(1, F / A)$ of a round instead of their share of the population. $b =
    -scale * mu$, with mu the mean of the benign sample.

    Args:
        scale: how far backwards.
    """

    name = "early_check_in"
    source = "FedGuard; the selection is of Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019"

    @lies(CHECK_IN)
    def check_in(self, assigned: float) -> float:
        return 0.0
