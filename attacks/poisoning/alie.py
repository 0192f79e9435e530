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

    $b = mu + z * sigma$, where $mu$ and $sigma$ (with $n - 1$ in the denominator) are the coordinate-wise mean and standard
    deviation of the benign sample. By default $z = Phi^-1((n - f - s) / (n - f))$. Here $s = floor(n / 2) + 1 - f$ is the
    number of benign updates that must lie further out for the malicious clients to hold the majority. If $s < 1$ they hold
    it already, and the formula uses $s = 1$.

    Args:
        z: shift in standard deviations, either sign; None takes the formula, which is often far too small.
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
    # With one benign client the probability is 0, where the quantile is infinite
    return NormalDist().inv_cdf(min(max((n - f - supporters) / max(n - f, 1), 1e-6), 1 - 1e-6))
