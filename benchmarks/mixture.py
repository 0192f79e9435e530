"""Random mixtures of directions, none of them a member: `worst_case.py` tells by them what the ensemble misses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.poisoning.min_max import MinMax
from fedguard.attacks.search import spread
from fedguard.contracts import PoisonAttack, PoisonView, Sight
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Mixture(PoisonAttack):
    """Goes along one random mixture of seven directions in all rounds, half to twice as far as Min-Max would.

    b = mu + s gamma p, gamma the longest step of Min-Max along p = sum_k a_k u(p_k), u(v) = v/|v|, over -mu, -sign(mu),
    -w, -sign(w), -sigma, the first principal direction of the honest updates and a fixed random sign vector; w is the global
    model. Each enters with probability 1/2, with a_k = |z|, z standard normal, and z itself for the last three; s is
    log-uniform in [1/2, 2].

    Args:
        draw: which mixture.
    """

    name = "mixture"
    source = "a yardstick of FedGuard's own"
    needs = (Sight.HONEST_UPDATES | Sight.MODEL,)

    draw: int = 0

    def craft(self, view: PoisonView) -> Tensor:
        honest, model = view.honest, view.model
        mean = honest.mean(0)
        drawn = Rng(self.draw).child("mixture").numpy()
        weights = drawn.standard_normal(7) * (drawn.random(7) < 0.5)
        weights[:4] = abs(weights[:4])
        scale = float(2 ** drawn.uniform(-1, 1))
        signs = 2.0 * torch.randint(2, (view.dim,), generator=Rng(self.draw).child("signs").torch()) - 1
        principal = torch.linalg.svd(honest - mean, full_matrices=False).Vh[0]
        principal = principal * principal[principal.abs().argmax()].sign()  # a singular vector has no sign of its own
        ways = (-mean, -mean.sign(), -model, -model.sign(), -spread(honest), principal, signs)
        direction = sum(
            (float(weight) * way / way.norm().clamp(min=1e-12) for weight, way in zip(weights, ways, strict=True)),
            torch.zeros_like(mean),
        )
        return (mean + scale * MinMax().step(honest, direction)).expand(view.f, -1)
