"""False behavior: malicious actors lie about how likely they were to act as they did."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import BEHAVIOR


@dataclass(frozen=True, kw_only=True)
class FalseBehavior(PoisonAttack):
    """Malicious actors say that they acted with far smaller probabilities than they did: log mu becomes log mu - shift.

    $mu <- e^{-shift} mu$. A learner that trusts these probabilities multiplies the importance weight of the malicious
    actors' steps by $e^{shift}$, unless it clips the ratio, as V-trace does, or computes the probabilities itself. A
    negative shift lowers the weight.

    Args:
        shift: of the logarithms, in nats.
    """

    name = "false_behavior"
    source = "of our own; Espeholt et al., ICML 2018, for what is lied about"
    needs = (Sight.OWN_DATA,)

    shift: float = 10.0

    @lies(BEHAVIOR)
    def shift_behavior(self, logs: Tensor) -> Tensor:
        return logs - self.shift
