"""A step along a mixture of harmful directions; FedGuard's own, measured by the step of Min-Max."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedguard.attacks.poisoning.min_max import MinMax
from fedguard.attacks.search import spread
from fedguard.contracts import BENIGN_SAMPLE, NonNegativeFloat, PoisonAttack, PoisonView, PositiveFloat, Sight
from fedguard.errors import require
from fedguard.kernels import length


@dataclass(frozen=True, kw_only=True)
class MixedStep(PoisonAttack):
    """Steps against the mean honest update, against its signs and back towards a model of zeros at once.

    $b = mu + length * gamma * p$ with $p = unit * u(-mu) + sign * u(-sign(mu)) + std * u(-sigma) + back * u(-w)$, $u(v) =
    v/|v|$, and w the global model before the round. $gamma$ is the largest with $max_i |b - x_i| <= max_ij |x_i - x_j|$ for
    $length = 1$, as in Min-Max. Honest updates change from round to round and the model hardly does. So the component along
    $-w$ accumulates, as weight decay would, while a reversal of $mu$ alone changes its direction. Coordinate-wise rules
    bound no distance; longer steps with a large part of $-sigma$ harm them most.

    Args:
        unit: the weight of $-mu$.
        sign: the weight of $-sign(mu)$.
        std: the weight of $-sigma$.
        back: the weight of $-w$; with 0 the model need not be seen.
        length: of the step, in units of the Min-Max step.
    """

    name = "mixed_step"
    source = "FedGuard; cf. Shejwalkar & Houmansadr, Manipulating the Byzantine, NDSS 2021"
    needs = tuple(sight | Sight.MODEL for sight in BENIGN_SAMPLE)

    unit: NonNegativeFloat = 1.0
    sign: NonNegativeFloat = 1.0
    std: NonNegativeFloat = 0.0
    back: NonNegativeFloat = 1.0
    length: PositiveFloat = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = (self.unit, self.sign, self.std, self.back)
        require(
            any(weights),
            f"mixed_step: unit, sign, std, back: expected weights that are not all 0; got {weights}.",
        )
        if self.back == 0:
            object.__setattr__(self, "needs", BENIGN_SAMPLE)

    def craft(self, view: PoisonView) -> Tensor:
        benign = view.benign
        mean = benign.mean(0)
        direction = self.unit * _unit(-mean) + self.sign * _unit(-mean.sign()) + self.std * _unit(-spread(benign))
        if self.back > 0:
            direction = direction + self.back * _unit(-view.model)
        return (mean + self.length * MinMax().step(benign, direction)).expand(view.f, -1)


def _unit(way: Tensor) -> Tensor:
    reach = length(way)
    return way / reach if reach > 0 else way
