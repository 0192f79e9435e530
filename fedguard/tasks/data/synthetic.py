"""Synthetic(alpha, beta): clients whose models and inputs differ by as much as one likes (Li et al., MLSys 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.data.assembly import Part, assembled


@dataclass(frozen=True, kw_only=True)
class Synthetic(Data):
    """Natural clients k with ``y = argmax softmax(W_k x + b_k)``, of 60 inputs and 10 classes.

    ``W_k, b_k ~ N(u_k, 1)`` with ``u_k ~ N(0, alpha)``; ``x ~ N(v_k, Sigma)`` with ``Sigma_jj = j^-1.2``, ``v_k ~ N(B_k, 1)`` and
    ``B_k ~ N(0, beta)``. A client has 50 examples and more, ``50 + lognormal(4, 2)`` of them, at most ``largest``.

    Args:
        alpha: variance of the clients' models; 0 and ``beta`` 0 is not IID yet: each client still draws its own.
        beta: variance of the clients' inputs.
        clients: how many natural clients there are.
        largest: the most examples of one client.
        seed: of all draws.
    """

    name = "synthetic"
    source = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020"

    alpha: float = 1.0
    beta: float = 1.0
    clients: int = 30
    largest: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.alpha >= 0, f"synthetic: alpha: expected 0 or more; got {self.alpha}.")
        require(self.beta >= 0, f"synthetic: beta: expected 0 or more; got {self.beta}.")
        require(self.clients >= 1, f"synthetic: clients: expected at least 1; got {self.clients}.")
        require(self.largest >= 50, f"synthetic: largest: expected at least 50 examples; got {self.largest}.")

    def load(self) -> Dataset:
        parts = [self._client(Rng(self.seed).child("synthetic", client).numpy()) for client in range(self.clients)]
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        clients = np.repeat(np.arange(self.clients), [len(labels) for _, labels in parts])
        kept = np.isin(y, [label for label in range(10) if (y == label).sum() >= 2])
        names = np.unique(y[kept])
        return assembled("synthetic", Part(x[kept], np.searchsorted(names, y[kept]), clients[kept]))

    def _client(self, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
        size = min(self.largest, 50 + int(draw.lognormal(4, 2)))
        model, inputs = draw.normal(0, self.alpha**0.5), draw.normal(0, self.beta**0.5)
        weight, bias = draw.normal(model, 1, (60, 10)), draw.normal(model, 1, 10)
        centre, deviation = draw.normal(inputs, 1, 60), np.arange(1, 61) ** -0.6
        x = centre + draw.normal(size=(size, 60)) * deviation
        return x, (x @ weight + bias).argmax(1)
