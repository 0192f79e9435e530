"""DSGT: nodes track the mean update while they follow it (Pu and Nedic, Mathematical Programming 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from fedguard.architectures.gossip.gossip import Gossip
from fedguard.architectures.gossip.nodes import Nodes
from fedguard.contracts.channels import TRACKERS


@dataclass(frozen=True, kw_only=True)
class GradientTracking(Gossip):
    """Each node follows a tracker of the mean update, and exchanges model and tracker.

    $x_{t+1} = W(x_t + y_t)$, $y_{t+1} = W(y_t + u_{t+1} - u_t)$ with $y_0 = u_0$, adapt first; combine first it is
    $W x_t + y_t$ and $W y_t + u_{t+1} - u_t$. The mean of all trackers equals the mean of all updates at any time. A round
    has two vectors to each neighbor, one after the other; the tracker is measured from 0, as updates are. With ``at_once``
    both go in one message, by one W, $x_{t+1} = W(x_t + y_t)$ and $y_{t+1} = W y_t + u_{t+1} - u_t$, as in the source.

    With a ``leak`` b trackers forget: $y_{t+1} = W((1 - b) y_t + u_{t+1} - (1 - b) u_t)$. Their mean is still the mean of the
    updates, but what a node adds to it once decays to $(1 - b)^t$ after t rounds; without a leak it stays for ever.

    Args:
        order: whether a node applies its tracker before it mixes, or after; or model and tracker are exchanged ``at_once``.
        leak: b, the share of a tracker that is forgotten in a round.
    """

    channels = Gossip.channels | {TRACKERS}
    whole = True
    name = "dsgt"
    source = "Pu and Nedic, Distributed Stochastic Gradient Tracking Methods, Mathematical Programming 2021"

    order: Literal["adapt_first", "combine_first", "at_once"] = "adapt_first"
    leak: Annotated[float, Ge(0), Lt(1)] = 0.0

    def models(self, nodes: Nodes) -> Iterator[Tensor]:
        return self._at_once(nodes) if self.order == "at_once" else self._in_turn(nodes)

    def _at_once(self, nodes: Nodes) -> Iterator[Tensor]:
        x, origin, kept = nodes.start, torch.zeros_like(nodes.start), 1 - self.leak
        y = u = nodes.updates(x)
        for round in count():
            at, matrix = x, nodes.topology.at(round)
            x = nodes.mix_values(at + y, about=at, matrix=matrix, vectors=2)
            y = nodes.mix_values(kept * y, about=origin, trackers_at=at, matrix=matrix, vectors=0)
            yield x
            before, u = u, nodes.updates(x)
            y = y + u - kept * before

    def _in_turn(self, nodes: Nodes) -> Iterator[Tensor]:
        x, origin = nodes.start, torch.zeros_like(nodes.start)
        y = u = nodes.updates(x)
        adapt_first, kept = self.order == "adapt_first", 1 - self.leak
        while True:
            x = nodes.mix_values(x + y, about=x) if adapt_first else nodes.mix_values(x, about=x) + y
            yield x
            before, u = u, nodes.updates(x)
            y, change = kept * y, u - kept * before
            if adapt_first:
                y = nodes.mix_values(y + change, about=origin, trackers_at=x)
            else:
                y = nodes.mix_values(y, about=origin, trackers_at=x) + change
