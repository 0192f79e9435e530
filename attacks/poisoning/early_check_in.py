"""Lying about when one was told to come back; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip


@dataclass(frozen=True, kw_only=True)
class EarlyCheckIn(SignFlip):
    """Checks in at once, whatever it was told, and reverses the mean update.

    A server that steers the pace of its devices tells each when to come back, and keeps nothing of whom it told what: so it
    takes whoever comes for told. Malicious devices come to each selection, at its beginning. With F of them, and A devices
    that a round asks, $min(1, F / A)$ of a round are theirs, instead of their share of all. $b = -scale * mu$, mu the mean of
    the benign sample.

    Args:
        scale: how far backwards.
    """

    name = "early_check_in"
    source = "FedGuard; the selection is of Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019"

    def checks_in(self, told: float) -> float:
        return 0.0
