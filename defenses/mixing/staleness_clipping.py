"""Norm clipping with a bound that shrinks with the age of an update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedguard.contracts import Gram, Mixing, NonNegativeFloat, PositiveFloat, PositiveInt, RuleContext, Sight, State


@dataclass(frozen=True, kw_only=True)
class StalenessClipping(Mixing):
    """Shortens updates to a bound that is the lower, the older they are.

    $y_i = x_i min(1, C s(tau_i) / |x_i|)$ with $s(tau) = (1 + tau)^{-slope}$ for an update that was trained from the model of
    $tau_i$ aggregates ago; $|x_i|$ is its length before the architecture scaled it for its age. So a short old update is kept
    whole, where a staleness weight would shrink all old updates alike. A long update that an attacker holds back moves the
    model by less. The server knows the age itself; it is no claim.

    It combines the clipping of Sun et al. with the staleness weights of Xie et al. (2019), and is published in neither paper.
    It needs an honest majority among the last updates. If malicious clients answer faster than honest ones, there may be
    none; then set ``bound``.

    Args:
        bound: C, in the units of the updates; None takes the median length of the last ``window`` updates, including these.
        slope: exponent by which the bound falls with age; 0 for a bound independent of age.
        window: number of lengths kept, so that even a single update can be judged.
    """

    name = "staleness_clipping"
    source = "Sun et al., Can You Really Backdoor Federated Learning?, 2019, at the ages of Xie et al., 2019"
    needs = (Sight.EACH_UPDATE | Sight.TIMES,)
    breakdown = "bounds what each malicious update adds, the more the older it is; it removes none"
    cost = "O(nd): norms; the last lengths are kept"
    keeps_rows = True
    grid: ClassVar = {"bound": (None, 0.1, 1.0), "slope": (0.5, 1.0)}

    bound: PositiveFloat | None = None
    slope: NonNegativeFloat = 0.5
    window: PositiveInt = 50

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        # The length as sent: the scale for its age, which the architecture applied, would count the age twice
        lengths = gram.norms() / context.scale
        bound = self._lengths(gram, context).quantile(0.5) if self.bound is None else self.bound
        allowed = bound * (1 + context.staleness.double()) ** -self.slope
        return (allowed / lengths).clamp(max=1).nan_to_num(nan=1.0).diag()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        return {} if self.bound is not None else {"lengths": self._lengths(gram, context)}

    def _lengths(self, gram: Gram, context: RuleContext) -> Tensor:
        """float64 ``[.]``: the last ``window`` lengths, or all of this aggregate if more, in the order of arrival."""
        before = context.state.get("lengths", torch.zeros(0, dtype=torch.float64))
        now = (gram.norms() / context.scale)[context.arrived.argsort(stable=True)]
        # Never fewer than the updates of this aggregate: a window shorter than it would judge by the latest updates only
        return torch.cat([before, now])[-max(self.window, gram.n) :]
