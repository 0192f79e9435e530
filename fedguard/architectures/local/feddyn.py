"""FedDyn: a regulariser that grows until the clients' optima are the global one (Acar et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedguard.architectures.local.contract import LocalAlgorithm
from fedguard.architectures.local.kept import check_kept
from fedguard.contracts import LocalPlan, Setup, Task
from fedguard.rng import Rng


class FedDyn(LocalAlgorithm):
    """Client i descends its loss ``L_i(w) - <g_i, w> + alpha/2 |w - start|^2``; g_i and the server's h are 0 at first.

    A client that moved by u_i sets ``g_i <- g_i - alpha u_i``. Of n of N clients with aggregate R, the server sets
    ``h <- h - alpha (n / N) R`` and moves by ``R - h / alpha``. It reads h off the aggregate, so no second vector travels, and
    a robust rule, masks and what attackers see cover h as they do updates.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        check_kept(setup, "feddyn", setup.task.dim)
        self._alpha = setup.training.own["alpha"]
        self._server = torch.zeros(setup.task.dim)
        self._own: dict[int, Tensor] = {}
        self._new: dict[int, Tensor] = {}

    def begin(self, chosen: Sequence[int]) -> None:
        self._new = {}

    def train(self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Rng, rows: Tensor) -> None:
        corrections = {client: -self._own[client] for client in clients if client in self._own}
        task.local_updates(model, clients, replace(plan, corrections=corrections), rng, rows)

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client, update in zip(clients, rows, strict=True):
            self._new[client] = self._own.get(client, 0) - self._alpha * update

    def settle(self, aggregate: Tensor, arrived: Collection[int]) -> Tensor:
        share = len(arrived) / len(self.setup.task.sizes)
        self._server = self._server - self._alpha * share * aggregate
        self._own |= {client: self._new[client] for client in arrived if client in self._new}
        return aggregate - self._server / self._alpha

    def gain(self, n: int) -> float:
        return 1 + n / len(self.setup.task.sizes)
