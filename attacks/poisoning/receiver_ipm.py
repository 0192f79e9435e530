"""Inner product manipulation around the receiver's own value, as far from it as its honest neighbors are."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.search import RuleOracle, strongest_row
from fedguard.contracts import PoisonAttack, PoisonView, PositiveFloat, Sight
from fedguard.kernels import distances_from, length


@dataclass(frozen=True, kw_only=True)
class ReceiverIPM(PoisonAttack):
    """A step from the receiver's own value against the mean honest value, at the largest length that passes.

    $b = x_i - s * mu / |mu|$ for the receiving node i. The h honest values $x_j$, with its own among them, are measured from
    the model that node i had before the round, and mu is their mean. Rules at nodes judge a message by its distance from
    $x_i$, which is s here. By default s is ``reach`` times the distance from $x_i$ to its (h - f)-th nearest honest neighbor:
    at a shorter distance all f messages are among the h values nearest to $x_i$. If the rule is granted, s is the length that
    moves the node farthest from mu, searched anew for each node and round.

    Args:
        reach: length in units of that distance. The search starts from it.
    """

    name = "receiver_ipm"
    source = "own; the step is of Xie et al., Fall of Empires, UAI 2020, around the receiver as in He et al., 2022 (dissensus)"
    needs = (Sight.HONEST_UPDATES | Sight.GRAPH | Sight.RULE, Sight.HONEST_UPDATES | Sight.GRAPH)
    adaptive = True

    reach: PositiveFloat = 0.99

    def craft(self, view: PoisonView) -> Tensor:
        honest, own = view.honest, view.honest_clients.index(view.receiver)
        h, mean = len(honest), honest.mean(0)
        # The receiver itself stands first, at distance 0
        passes = distances_from(honest, honest[own]).sort().values[min(max(h - view.f, 1), h - 1)]
        by = self.reach * float(passes) / (length(mean) or 1.0)
        if Sight.RULE not in view.granted or by == 0:
            return (honest[own] - by * mean).expand(view.f, -1)
        asked = RuleOracle(view, [])
        magnitudes = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        row = strongest_row(asked, asked.unit(own), -by * asked.mean, magnitudes, 1.0, signs=(1,))
        return asked.vector(row).expand(view.f, -1)
