"""PoisonedFL (Xie, Fang & Gong, CVPR 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from fedguard.attacks.history import last_change, with_model
from fedguard.contracts import (
    NonNegativeFloat,
    PoisonAttack,
    PoisonView,
    PositiveFloat,
    PositiveInt,
    ProperFraction,
    Share,
    Sight,
    State,
)


@dataclass(frozen=True, kw_only=True)
class PoisonedFL(PoisonAttack):
    """Always the same random direction: what each round lets through adds up, and no client's data need be known.

    $b = c |g| (v "·" s)$, with $s in {-1, 1}^d$ drawn once and g the last aggregate, read off the global models. v is the
    unit vector of $|g - |g| k/|k||$, coordinate by coordinate, where k is the last b: an estimate of the sizes of honest
    updates. Every ``every`` rounds the attack tests whether the model moved along s. If no more coordinates did than random
    ones would with probability 1 - ``doubt``, the attack was filtered, and c falls by ``decay``, though not below
    ``least``. Coordinates that did not move count half. In its first round, without a g, it sends zeros.

    Args:
        scale: c at the start.
        every: rounds between two tests, counted in those in which the attack acts.
        decay: factor on c after a failed test.
        least: c never falls below.
        doubt: significance level of the test.
    """

    name = "poisoned_fl"
    source = "Xie, Fang & Gong, Model Poisoning Attacks to Federated Learning via Multi-Round Consistency, CVPR 2025"
    needs = (Sight.MODEL,)

    scale: PositiveFloat = 8.0
    every: PositiveInt = 50
    decay: Share = 0.7
    least: NonNegativeFloat = 0.5
    doubt: ProperFraction = 0.01

    def craft(self, view: PoisonView) -> Tensor:
        change = last_change(view)
        if change is None:
            return torch.zeros_like(view.model).expand(view.f, -1)
        last, length = view.state["sent"], change.norm()
        genuine = (change - length * last / last.norm().clamp(min=1e-12)).abs()
        sizes = genuine / genuine.norm().clamp(min=1e-12)
        sent: Tensor = self._scale(view) * length * sizes * view.state["signs"]
        return sent.expand(view.f, -1)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        if not view.state:
            bits = torch.randint(2, (view.dim,), generator=view.rng.torch())
            start = {"signs": 2.0 * bits - 1, "tested": view.model.clone(), "rounds": torch.tensor(0)}
        else:
            keys = ("signs", "tested", "rounds")
            start = {key: view.state[key] for key in keys}
            if self._due(view):
                start["tested"] = view.model.clone()
        scale = torch.tensor(self._scale(view), dtype=torch.float64)
        return {**start, **with_model(view), "rounds": start["rounds"] + 1, "sent": crafted[0].clone(), "scale": scale}

    def notes(self, state: State) -> dict[str, float]:
        return {"scale": float(state["scale"])} if state else {}

    def _due(self, view: PoisonView) -> bool:
        rounds = int(view.state["rounds"]) if view.state else 0
        return rounds > 0 and rounds % self.every == 0

    def _scale(self, view: PoisonView) -> float:
        """c in this round, after the test where one is due."""
        scale = float(view.state["scale"]) if view.state else self.scale
        if not self._due(view):
            return scale
        moved = (view.model - view.state["tested"]).sign()
        aligned = float((moved * view.state["signs"] + 1).sum() / 2)
        # Normal approximation of the binomial test: under the null d/2 coordinates agree, with deviation sqrt(d)/2
        needed = view.dim / 2 + NormalDist().inv_cdf(1 - self.doubt) * view.dim**0.5 / 2
        return scale if aligned > needed or scale * self.decay < self.least else scale * self.decay
