"""FedAsync: each model that comes is mixed in, the less the older it is (Xie et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedguard.architectures.systems.event_server import EventServer
from fedguard.contracts import Cell, NonNegativeFloat, Participation, Share, Sight
from fedguard.simulated.barriers import Barrier, asp


@dataclass(frozen=True, kw_only=True)
class FedAsync(EventServer):
    """Each client's model is mixed in as it comes, and counts the less, the older the one is that it was trained from.

    $w <- (1 - a) w + a x$ for a client's model x, with $a = alpha s(tau)$ if x was trained from the model of tau aggregates
    ago. $s = 1$ (``constant``), $(1 + tau)^{-slope}$ (``polynomial``), or 1 up to ``bound`` and
    $1 / (slope (tau - bound) + 1)$ beyond it (``hinge``). ``server_lr`` and server momentum act on the difference
    $a (x - w)$.

    Args:
        alpha: weight of a fresh model.
        staleness: form of s.
        slope: how fast s falls.
        bound: staleness up to which s is 1 (``hinge``).
    """

    name = "fedasync"
    source = "Xie et al., Asynchronous Federated Optimization, 2019"

    alpha: Share = 0.6
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    slope: NonNegativeFloat = 0.5
    bound: NonNegativeFloat = 4.0

    @property
    def more_rows(self) -> str:
        return "Here each update is an aggregate of its own: use mean, or fedbuff."

    def barrier(self, clients: Participation) -> Barrier:
        return asp()

    def reasons(self, cell: Cell) -> Iterator[str]:
        yield from super().reasons(cell)
        if Sight.TIMES | Sight.MODEL in cell.rule_sees:
            yield (
                f"{cell.pipeline.rule.name} compares updates with the models that they were trained from, and what fedasync "
                "adds up are differences between models. Use parameter_server(consistency='eventual') or fedbuff."
            )

    def weight(self, staleness: int) -> float:
        if self.staleness == "polynomial":
            return float(self.alpha * (1 + staleness) ** -self.slope)
        if self.staleness == "hinge" and staleness > self.bound:
            return self.alpha / (self.slope * (staleness - self.bound) + 1)
        return self.alpha

    def toward(self, updates: Tensor, starts: Sequence[Tensor], model: Tensor) -> Tensor:
        # x - w = (x - start) + (start - w): an old model pulls the server back, also where the client has learned nothing
        return updates + (torch.stack(tuple(starts)) - model)
