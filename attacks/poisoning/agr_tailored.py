"""The attack tailored to the known rule (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from fedguard.attacks.search import Asked, SearchingAttack, along, largest, spread, strongest_row
from torch import Tensor

from fedguard.contracts import PoisonView
from fedguard.errors import PreconditionError
from fedguard.kernels import length


@dataclass(frozen=True, kw_only=True)
class AGRTailored(SearchingAttack):
    """The longest step in a harmful direction that the known rule still lets in.

    b = mu + gamma * p with the largest gamma such that the colluders' rows make up at least f/n of the aggregate, the
    share of f equal votes: for Krum that one of them is selected, for Multi-Krum that nearly all are. Where a rule has no
    weights, gamma > 0 maximises ``|R - mu|``, which is the source's form for the median and the trimmed mean. The source
    asks Multi-Krum to select all f and treats no smooth rule; a share of f/n covers both. It halves its step around a
    first guess; here gamma is 2^-3 ... 2^5 or more, then halved between the last two.

    Args:
        direction: p: ``std`` -sigma, ``unit`` -mu, ``sign`` -sign(mu), the latter two made as long as sigma, so that gamma
            is in standard deviations.
    """

    name = "agr_tailored"
    source = "Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"
    magnitudes = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

    direction: Literal["std", "unit", "sign"] = "std"

    def searched(self, view: PoisonView) -> Tensor:
        asked = Asked(view, [self._step(view.honest)])
        step, vote = asked.unit(len(view.honest)), view.f / view.n
        try:
            if asked.probe(asked.mean).hostile_weight is None:
                return asked.vector(strongest_row(asked, asked.mean, step, self.magnitudes, 1.0, signs=(1,)))

            def admitted(gamma: float) -> bool:
                share = asked.probe(asked.mean + gamma * step).hostile_weight
                return share is not None and share >= vote * (1 - 1e-6)

            return asked.vector(asked.mean + largest(admitted, self.magnitudes) * step)
        except PreconditionError:
            return asked.vector(asked.mean + step)  # too few updates for the rule: the server abandons the round

    def strength(self, view: PoisonView, crafted: Tensor) -> float:
        return along(crafted[0], view.honest.mean(0), self._step(view.honest))

    def _step(self, honest: Tensor) -> Tensor:
        sigma, mean = spread(honest), honest.mean(0)
        if self.direction == "std":
            return -sigma
        way = -mean if self.direction == "unit" else -mean.sign()
        own = length(way)
        scaled: Tensor = way * (length(sigma) / own) if own > 0 else torch.zeros_like(way)
        return scaled
