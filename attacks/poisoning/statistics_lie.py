"""False running statistics beside honest parameters, in a network with batch normalization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, Sight, StatisticsLayout, lies
from fedguard.contracts.channels import STATISTICS


@dataclass(frozen=True, kw_only=True)
class StatisticsLie(PoisonAttack):
    """Trains and sends its update honestly, and sends false running statistics beside it.

    $v -> factor * v$, or $m -> m + factor$, in some layers. No rule that looks at updates can see it. Averaged by the server, a
    variance that is far too large makes the outputs of a layer alike for all inputs, and a mean that is far off moves them all
    to one side. ``factor`` below 0 makes variances negative, which a server takes for 0.

    Args:
        what: which statistics are false.
        factor: by what variances are multiplied, or what is added to means.
        layers: which layers: ``all``, or the ``last`` one.
    """

    name = "statistics_lie"
    source = "own"
    needs = (Sight.OWN_DATA,)

    what: Literal["variance", "mean"] = "variance"
    factor: float = 1e4
    layers: Literal["all", "last"] = "all"

    @lies(STATISTICS)
    def falsify(self, statistics: Tensor, layout: StatisticsLayout) -> Tensor:
        """float32 ``[f, s]``."""
        chosen = layout.variances if self.what == "variance" else ~layout.variances
        if self.layers == "last":
            chosen = chosen & (torch.arange(layout.size) >= layout.size - 2 * layout.channels[-1])
        false = statistics * self.factor if self.what == "variance" else statistics + self.factor
        return torch.where(chosen, false, statistics)
