"""A weighted mean with a cap on what clients claim (Portnoy et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedguard.contracts import Gram, PositiveInt, RuleContext, Share, Sight, WeightRule
from fedguard.contracts.claims import shares
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class CappedMean(WeightRule):
    """The weighted mean, with a cap on the examples claimed.

    $R(x) = sum_i (c_i / (sum_j c_j)) x_i$ with $c_i = min(m_i, U)$ for the claims $m_i$, and the largest U for which the k
    largest $c_i$ add up to at most ``share`` of the sum. If no cap is needed, it is the weighted mean. The cap bounds only the
    weight that a false claim gains: the updates of k clients still count with up to that share.

    Args:
        share: the largest share of the total weight that any k clients may hold; k/n or more. Half of the weight is enough
            to stop a mean.
        clients: k; None takes the assumed f, so that nothing is capped for $f = 0$. With 1 no single client holds more than
            the share, whatever f is.
    """

    name = "capped_mean"
    source = "Portnoy et al., Towards Federated Learning With Byzantine-Robust Client Weighting, 2020"
    needs = (Sight.EACH_UPDATE,)
    min_rows = (2, 1)
    breakdown = "0: one update decides; false claims count no more than the share"
    cost = "one pass"
    reads_clients = True
    grid: ClassVar = {"share": (0.25, 0.5)}
    later: ClassVar = {"clients": None}

    share: Share = 0.5
    clients: PositiveInt | None = None

    def check(self, n: int, f: int) -> None:
        super().check(n, f)
        k, of = (f, "f") if self.clients is None else (self.clients, "clients")
        if k > self.share * n:
            raise PreconditionError(
                f"capped_mean needs {of} <= share n: {of} = {k} of n = {n} equal clients hold more than {self.share:g} of the "
                f"weight. Raise share to {min(k / n, 1):.2g} or more{', or lower clients' if k > n else ''}."
            )

    def weights(self, gram: Gram, context: RuleContext) -> Tensor:
        return shares(self.name, self._cap_claims(context.samples, self.clients or context.f))

    def _cap_claims(self, claims: Tensor, k: int) -> Tensor:
        """float64 ``[n]``: the claims, cut to the largest cap that bounds the share of the k largest."""

        def will_do(cap: float) -> bool:
            cut = claims.clamp(max=cap)
            # The slack lets a share pass that is met exactly, such as the share of equal claims at k = share n
            return float(cut.topk(k).values.sum()) <= self.share * float(cut.sum()) * (1 + 1e-12)

        # `low` always passes: under the smallest claim as the cap all weigh alike, and check() refuses k > share n
        low, high = float(claims.min()), float(claims.max())
        if will_do(high):
            return claims
        for _ in range(60):  # the share of the k largest grows with the cap; 60 halvings are finer than float64
            middle = (low + high) / 2
            low, high = (middle, high) if will_do(middle) else (low, middle)
        return claims.clamp(max=low)
