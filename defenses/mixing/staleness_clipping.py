"""Norm clipping whose bound shrinks with the age of an update."""

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
    $tau_i$ aggregates ago; $|x_i|$ is its length before the architecture scaled it for its age. So an old update that is short
    is kept whole, where a weight for its age would take from all old ones alike; and one that is held back to be released
    later moves the model by less, whatever its length. Its age is the server's own knowledge, and no claim.

    It joins the clip of Sun et al. to the staleness weights of Xie et al. (2019), and is no paper's own algorithm. It needs an
    honest majority among the last updates, which clients that answer quickly may not leave; then set ``bound``.

    Args:
        bound: C, in the units of the updates; None takes the median length of the last ``window`` updates, these among them.
        slope: how fast it falls; 0 for a bound that no age lowers.
        window: how many lengths are kept, so that one update at a time can be judged.
    """

    name = "staleness_clipping"
    source = "Sun et al., Can You Really Backdoor Federated Learning?, 2019, at the ages of Xie et al., 2019"
    needs = (Sight.EACH_UPDATE | Sight.TIMES,)
    breakdown = "bounds what each malicious update adds, the more the older it is; it removes none"
    cost = "O(nd): norms; the last lengths are kept"
    grid: ClassVar = {"bound": (None, 0.1, 1.0), "slope": (0.5, 1.0)}

    bound: PositiveFloat | None = None
    slope: NonNegativeFloat = 0.5
    window: PositiveInt = 50

    def matrix(self, gram: Gram, context: RuleContext) -> Tensor:
        lengths = gram.norms() / context.scale
        bound = self._lengths(gram, context).quantile(0.5) if self.bound is None else self.bound
        allowed = bound * (1 + context.staleness.double()) ** -self.slope
        return (allowed / lengths).clamp(max=1).nan_to_num(nan=1.0).diag()

    def remember(self, context: RuleContext, aggregate: Tensor, gram: Gram) -> State:
        return {} if self.bound is not None else {"lengths": self._lengths(gram, context)}

    def _lengths(self, gram: Gram, context: RuleContext) -> Tensor:
        """float64 ``[<= window]``: the last lengths, in the order in which the updates came."""
        before = context.state.get("lengths", torch.zeros(0, dtype=torch.float64))
        now = (gram.norms() / context.scale)[context.arrived.argsort(stable=True)]
        return torch.cat([before, now])[-max(self.window, gram.n) :]
