"""Mimic (Karimireddy et al., ICLR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import PoisonAttack, PoisonView, PositiveInt, Sight, State


@dataclass(frozen=True, kw_only=True)
class Mimic(PoisonAttack):
    """All malicious clients copy one honest client, so that its data count too much; no copy looks malicious.

    The copied client is the one furthest out along z, the direction in which the honest clients differ most. z is learned
    over the warm-up by Oja's rule: $z <- t/(t+1) z + 1/(t+1) sum_i <x_i - mu, z> (x_i - mu)$, normalized. Then the attack
    copies the client with the largest $|sum_t <z_t, x_i>|$ to the end; in a round without it, the present client with the
    best score.

    Args:
        warmup: rounds of learning.
        client: always copy this client instead; in a round without it, the lowest-numbered honest one.
    """

    name = "mimic"
    source = "Karimireddy et al., Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022"
    needs = (Sight.HONEST_UPDATES,)

    warmup: PositiveInt = 20
    client: int | None = None

    def craft(self, view: PoisonView) -> Tensor:
        if not view.honest_clients:  # there is nobody to copy
            return view.benign.expand(view.f, -1)
        return view.honest[self._choose_client(view)].expand(view.f, -1)

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        seen_rounds = int(view.state.get("rounds", torch.zeros(())))
        if self.client is not None or not view.honest_clients or seen_rounds >= self.warmup:
            return view.state
        z = _direction(view)
        centered_products = view.honest @ z - view.honest.mean(0) @ z
        # The sum of c_i (x_i - mu), with c_i = <x_i - mu, z>, without a centered copy of the honest rows
        pulled = centered_products @ view.honest - centered_products.sum() * view.honest.mean(0)
        t = seen_rounds + 1
        z = t / (t + 1) * z + pulled / (t + 1)
        return {
            "rounds": torch.tensor(seen_rounds + 1),
            "z": z / z.norm().clamp(min=1e-12),
            "scores": _scores(view),
        }

    def _choose_client(self, view: PoisonView) -> int:
        clients = view.honest_clients
        if self.client is not None:
            return clients.index(self.client) if self.client in clients else clients.index(min(clients))
        scores = _scores(view) if int(view.state.get("rounds", torch.zeros(()))) < self.warmup else view.state["scores"]
        present = torch.tensor(clients)
        padded = torch.nn.functional.pad(scores, (0, max(0, int(present.max()) + 1 - len(scores))))
        return int(padded[present].abs().argmax())


def _direction(view: PoisonView) -> Tensor:
    """The z learned so far; at first a random one."""
    if "z" in view.state:
        return view.state["z"]
    z = torch.randn(view.dim, generator=view.rng.torch())
    unit: Tensor = z / z.norm()
    return unit


def _scores(view: PoisonView) -> Tensor:
    """float32 ``[clients]``: the sum over the rounds so far of z_t.x_i, by client number."""
    present = torch.tensor(view.honest_clients)
    old = view.state.get("scores", torch.zeros(0))
    scores = torch.nn.functional.pad(old, (0, max(0, int(present.max()) + 1 - len(old))))
    return scores.index_add(0, present, view.honest @ _direction(view))
