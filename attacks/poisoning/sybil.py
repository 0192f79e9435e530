"""Sybils (Fung et al., RAID 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedguard.contracts import DataView, Examples, PoisonAttack, PoisonView, PositiveFloat, Sight, State
from fedguard.kernels import length
from fedguard.rng import Rng


@dataclass(frozen=True, kw_only=True)
class Sybil(PoisonAttack):
    """One adversary behind many clients: all send one poisoned update, in copies that look unlike each other.

    The malicious clients train on flipped labels, y becomes $C - 1 - y$, and u is ``scale`` times the mean of their
    updates. They send $u + e_i$, with $e_i$ orthogonal to u, of sum 0, and $<e_i, e_j> = -|u|^2$ for $i != j$, so that
    every two copies are orthogonal. This is the source's attack on its own defense, FoolsGold. Without ``decorrelated`` all
    send u itself, which FoolsGold detects; each update is then $sqrt(f)$ times shorter. Each $e_i$ stays close to a
    direction that the client draws once, so the copies also differ in their sums over rounds, which FoolsGold compares; the
    source perturbs pairs in opposite ways. With fewer dimensions than malicious clients the sum is still u, but the copies
    are not quite orthogonal.

    Args:
        scale: factor on the update.
        decorrelated: whether to decorrelate the copies; against rules that filter by length, False may do more harm.
    """

    name = "sybil"
    source = "Fung et al., The Limitations of Federated Learning in Sybil Settings, RAID 2020"
    needs = (Sight.OWN_DATA,)

    scale: PositiveFloat = 1.0
    decorrelated: bool = True

    def poison(self, examples: Examples, view: DataView) -> Examples:
        return examples.replace(y=view.classes - 1 - examples.y)

    def craft(self, view: PoisonView) -> Tensor:
        common = self.scale * view.own.mean(0)
        copies = common.expand(view.f, -1)
        return copies + _apart(common, view, _seed(view)) if self.decorrelated and view.f > 1 else copies

    def remember(self, view: PoisonView, crafted: Tensor) -> State:
        return {"seed": torch.tensor(_seed(view))} if self.decorrelated else view.state


def _seed(view: PoisonView) -> int:
    """The seed of the clients' own directions, drawn in the first round."""
    return int(view.state["seed"]) if "seed" in view.state else view.rng.child("seed").entropy() % 2**62


def _apart(common: Tensor, view: PoisonView, seed: int) -> Tensor:
    """float32 ``[f, d]``: the e_i."""
    streams = [Rng(seed).child(client).torch() for client in view.malicious]
    drawn = torch.stack([torch.randn(view.dim, generator=stream) for stream in streams])
    reach = length(common)
    unit = common / reach if reach > 0 else common
    drawn -= (drawn @ unit)[:, None] * unit
    # The symmetric inverse root turns the directions as little as it can to make them orthonormal.
    values, vectors = torch.linalg.eigh((drawn @ drawn.T).double())
    # In fewer dimensions than clients the Gram matrix is singular, and the inverse root would amplify its rounding errors
    root = torch.where(values > 1e-6 * values[-1], values.clamp(min=1e-300).rsqrt(), 0.0)
    orthonormal = (vectors * root) @ vectors.T
    f = len(drawn)
    centring = torch.eye(f, dtype=torch.float64) - 1 / f
    # Centering orthonormal rows gives inner products -1/f, so the factor sqrt(f) |u| makes them -|u|^2
    apart: Tensor = reach * f**0.5 * (centring @ orthonormal).to(drawn.dtype) @ drawn
    return apart
