"""Relocated orthogonal perturbation (Ozfatura et al., IEEE TIFS 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.attacks.history import last_change, with_model
from fedguard.attacks.poisoning.alie import supportive_z
from fedguard.contracts import Fraction, PoisonAttack, PoisonView, PositiveFloat, Sight, State
from fedguard.kernels import length


@dataclass(frozen=True, kw_only=True)
class ROP(PoisonAttack):
    """A perturbation that stands on the aggregate of the round before, where centered clipping looks for honest updates.

    $b = pi * m + (1 - pi) * mu + z * eta * q$, where m is the last aggregate, $mu$ the mean of the benign sample, and $eta$
    the local step size times the number of local steps (1 in FedSGD). q is a unit vector at ``angle`` to the reference $u =
    lamb * m + (1 - lamb) * mu$ ($mu$ itself in the first round): $q = cos(angle) * u/|u| - sin(angle) * p/|p|$, with p the
    all-ones vector less its projection on u. Since p hardly turns from round to round, the small steps accumulate.

    ``z`` and ``angle`` follow the source, where clients send gradients: z is in units of these. An update points the other
    way, hence the minus sign: 270 raises every parameter, as in the source. The attack is meant for ``worker_momentum``; m
    is read off the global models, which under server momentum gives the velocity instead.

    The source's program has ``rop(z=None, angle=270)`` by default. Against a clipping radius that follows the updates these
    defaults do less harm than clients that drop out. They do none if the network is one layer followed by a softmax, since
    all-ones adds the same to each of its outputs. Hence the other defaults here.

    Args:
        z: length of the perturbation, in units of a gradient; None takes ALIE's formula, 0.25 for 5 of 25 clients.
        pi: share of relocation to m.
        lamb: share of m in the reference.
        angle: degrees; 90 and 270 are orthogonal, 180 goes straight back.
    """

    name = "rop"
    source = "Ozfatura et al., Byzantines Can Also Learn From History: Fall of Centered Clipping, IEEE TIFS 2024"
    needs = (Sight.HONEST_UPDATES | Sight.MODEL, Sight.OWN_DATA | Sight.MODEL)

    z: PositiveFloat | None = 1.0
    pi: Fraction = 1.0
    lamb: Fraction = 0.9
    angle: float = 180.0

    def craft(self, view: PoisonView) -> Tensor:
        mean, change, model = view.benign.mean(0), last_change(view), view.model
        before = torch.zeros_like(model) if change is None else change
        reference = mean if change is None else self.lamb * before + (1 - self.lamb) * mean
        along = _unit(reference)
        across = _unit(1 - along.sum() * along)
        angle = math.radians(self.angle)
        z = self.z if self.z is not None else supportive_z(view.n, view.f)
        place = self.pi * before + (1 - self.pi) * mean
        turned = math.cos(angle) * along - math.sin(angle) * across
        return (place + z * view.local_lr * turned).expand(view.f, -1)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return with_model(view)


def _unit(vector: Tensor) -> Tensor:
    reach = length(vector)
    unit: Tensor = vector / reach if reach > 0 else vector
    return unit
