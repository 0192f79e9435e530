"""DeFacto: many local gradients, then many exchanges (Lu and De Sa, ICML 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from torch import Tensor

from fedguard.architectures.gossip.detag import accelerated, mean_update
from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class DeFacto(Gossip):
    """A phase is R trainings from one model, then R exchanges of accelerated gossip.

    $x <- A_R(x + (u_1 + ... + u_R) / R)$ with $A_R$ as in `detag`. So the nodes come nearly to agree after each step, at the
    price of few steps. A round is a phase.

    Args:
        phase: R.
    """

    whole = True
    name = "defacto"
    source = "Lu and De Sa, Optimal Complexity in Decentralized Training, ICML 2021"

    phase: Annotated[int, Interval(ge=1, le=1000)] = 4

    def trainings(self) -> int:
        return self.phase

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x = nodes.start
        while True:
            u = mean_update(nodes, x, self.phase)
            x = accelerated(nodes, x + u, self.phase, about=x)
            yield x
