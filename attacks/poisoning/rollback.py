"""A step against the honest updates and against the model at once; FedGuard's own, of the length of Min-Max."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fedguard.attacks.poisoning.min_max import MinMax
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, Sight
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class Rollback(PoisonAttack):
    """Steps against the mean honest update, against its signs and back towards a model of zeros, as far as Min-Max lets it.

    b = mu + gamma * p with p = unit * u(-mu) + sign * u(-sign(mu)) + back * u(-w), u(v) = v/|v|, w the global model before
    the round, and the largest gamma such that max_i |b - x_i| <= max_ij |x_i - x_j|. Honest updates change from round to
    round and the model hardly does: what is taken from it adds up, as weight decay would, where a reversal of mu alone
    pushes now here, now there.

    Args:
        unit: the weight of -mu.
        sign: the weight of -sign(mu).
        back: the weight of -w.
    """

    name = "rollback"
    source = "FedGuard; cf. Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"
    needs = (Sight.HONEST_UPDATES | Sight.MODEL, Sight.OWN_DATA | Sight.MODEL)

    unit: float = 1.0
    sign: float = 1.0
    back: float = 1.0

    def __post_init__(self) -> None:
        weights = (self.unit, self.sign, self.back)
        require(
            min(weights) >= 0 < max(weights),
            f"rollback: unit, sign, back: expected weights of 0 or more, not all 0; got {weights}.",
        )

    def craft(self, view: PoisonView) -> Tensor:
        benign = view.benign
        mean = benign.mean(0)
        ways = zip((self.unit, self.sign, self.back), (mean, mean.sign(), view.model), strict=True)
        direction = -sum((weight * _unit(way) for weight, way in ways), torch.zeros_like(mean))
        return (mean + MinMax().step(benign, direction)).expand(view.f, -1)


def _unit(way: Tensor) -> Tensor:
    return way / way.norm().clamp(min=1e-12)
