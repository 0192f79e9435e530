"""DeFacto: many local gradients, then many exchanges (after Lu and De Sa, ICML 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Interval
from torch import Tensor

from fedguard.architectures.gossip.detag import accelerate_mixing, mean_update
from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes


@dataclass(frozen=True, kw_only=True)
class DeFacto(Gossip):
    """A phase is R trainings from one model, then R exchanges.

    $x <- A_R(x + (u_1 + ... + u_R) / R)$ with accelerated gossip $A_R$ as in `detag`; or with plain exchanges, as in the
    source, $x <- W^R(x + (u_1 + ... + u_R) / R)$. Nodes nearly agree after each step, at the price of few steps. A round is a
    phase.

    Args:
        phase: R.
        plain: whether exchanges are not accelerated.
    """

    whole = True
    name = "defacto"
    source = "after Lu and De Sa, Optimal Complexity in Decentralized Training, ICML 2021"
    stands_loss = True

    later: ClassVar = {"plain": False}

    phase: Annotated[int, Interval(ge=1, le=1000)] = 4
    plain: bool = False

    def trainings(self) -> int:
        return self.phase

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        x = nodes.start
        while True:
            u = mean_update(nodes, x, self.phase)
            x = accelerate_mixing(nodes, x + u, self.phase, about=x, plain=self.plain)
            yield x
