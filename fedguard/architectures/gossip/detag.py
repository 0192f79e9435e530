"""DeTAG: gradient tracking with accelerated gossip in phases (Lu and De Sa, ICML 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts.channels import TRACKERS


@dataclass(frozen=True, kw_only=True)
class DeTAG(Gossip):
    """A phase is R trainings, whose mean is tracked, and R exchanges of accelerated gossip of model and tracker.

    $x <- A_R(x + y)$, $y <- A_R(y + u_+ - u)$, adapt first; combine first it is $A_R x + y$ and $A_R y + u_+ - u$. $A_R a$ is
    $a_R$ of $a_{r+1} = (1 + c) W a_r - c a_{r-1}$ with $a_0 = a_{-1} = a$ and
    $c = (1 - (1 - lambda^2)^{1/2}) / (1 + (1 - lambda^2)^{1/2})$, lambda the eigenvalue of W with the second largest
    modulus. A round is a phase: it takes R times the work and the messages of a round of DSGT, and makes one step.

    Args:
        phase: R.
        order: whether a node applies its update before it mixes, or after.
    """

    channels = Gossip.channels | {TRACKERS}
    whole = True
    name = "detag"
    source = "Lu and De Sa, Optimal Complexity in Decentralized Training, ICML 2021"

    phase: Annotated[int, Interval(ge=1, le=1000)] = 4
    order: Literal["adapt_first", "combine_first"] = "adapt_first"

    def trainings(self) -> int:
        return self.phase

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x, origin, phase = nodes.start, torch.zeros_like(nodes.start), self.phase
        y = u = mean_update(nodes, x, phase)
        adapt_first = self.order == "adapt_first"
        while True:
            x = (
                accelerate_mixing(nodes, x + y, phase, about=x)
                if adapt_first
                else accelerate_mixing(nodes, x, phase, about=x) + y
            )
            yield x
            before, u = u, mean_update(nodes, x, phase)
            change = u - before
            if adapt_first:
                y = accelerate_mixing(nodes, y + change, phase, about=origin, trackers_at=x)
            else:
                y = accelerate_mixing(nodes, y, phase, about=origin, trackers_at=x) + change


def mean_update(nodes: Nodes, models: Tensor, times: int) -> Tensor:
    """float32 ``[n, d]``: mean of ``times`` trainings of each node from one model."""
    total = nodes.updates(models)
    for _ in range(times - 1):
        total = total + nodes.updates(models)
    return total / times


def accelerate_mixing(
    nodes: Nodes, values: Tensor, times: int, *, about: Tensor, trackers_at: Tensor | None = None, plain: bool = False
) -> Tensor:
    """$A_R$ of the values, float32 ``[n, d]``.

    Args:
        about, trackers_at: as in `Nodes.mix_values`, in each of the exchanges.
        plain: whether c = 0, which leaves $W^R$.
    """
    # Rounding may take lambda of a graph in parts slightly above 1
    root = sqrt(max(0.0, 1 - nodes.topology.second**2))
    c = 0.0 if plain else (1 - root) / (1 + root)
    before = values
    for _ in range(times):
        values, before = (1 + c) * nodes.mix_values(values, about, trackers_at=trackers_at) - c * before, values
    return values
