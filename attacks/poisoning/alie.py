"""A little is enough (Baruch et al., NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from fedguard.attacks.search import spread
from fedguard.contracts import BENIGN_SAMPLE, PoisonAttack, PoisonView


@dataclass(frozen=True, kw_only=True)
class ALIE(PoisonAttack):
    """A shift of every coordinate by few enough standard deviations to pass for benign.

    $b = mu + z * sigma$, $mu$ and $sigma$ (with $n - 1$ in the denominator) the coordinate-wise mean and standard deviation
    of the benign sample. By default $z = Phi^-1((n - f - s) / (n - f))$ with $s = floor(n / 2) + 1 - f$, the benign updates
    that must lie further out for the malicious clients to hold the majority; where $s < 1$ they hold it already, and $s =
    1$ is taken.

    Args:
        z: shift in standard deviations, either sign; None takes the formula, which is often far too timid.
    """

    name = "alie"
    source = "Baruch et al., A Little Is Enough: Circumventing Defenses For Distributed Learning, NeurIPS 2019"
    needs = BENIGN_SAMPLE

    z: float | None = None

    def craft(self, view: PoisonView) -> Tensor:
        benign = view.benign
        z = self.z if self.z is not None else supportive_z(view.n, view.f)
        return (benign.mean(0) + z * spread(benign)).expand(view.f, -1)


def supportive_z(n: int, f: int) -> float:
    """The source's z for f malicious clients among n."""
    supporters = max(n // 2 + 1 - f, 1)
    return NormalDist().inv_cdf(min(max((n - f - supporters) / (n - f), 1e-6), 1 - 1e-6))
