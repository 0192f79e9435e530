"""False accusations in a training whose nodes check each other; after Gorbunov et al. (ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.poisoning.sign_flip import SignFlip
from fedguard.contracts import lies
from fedguard.contracts.channels import ACCUSATIONS


@dataclass(frozen=True, kw_only=True)
class FalseAccusation(SignFlip):
    """Accuses each honest node that it is to check, and reverses the mean update.

    $b = -scale * mu$, with mu the mean of the benign sample. Each accusation makes all nodes repeat a computation. If most
    nodes are honest, they ban the accuser; otherwise the accused honest node is banned.

    Args:
        scale: how far backwards.
    """

    name = "false_accusation"
    source = "Gorbunov et al., Secure Distributed Training at Scale, ICML 2022"

    @lies(ACCUSATIONS)
    def accuse(self, accuses: bool) -> bool:
        return True
