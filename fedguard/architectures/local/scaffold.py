"""SCAFFOLD: variates that take the clients' drift out of their gradients (Karimireddy et al., ICML 2020)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedguard.architectures.local.contract import LocalAlgorithm
from fedguard.architectures.local.kept import check_kept
from fedguard.contracts import LocalPlan, Setup, Task
from fedguard.rng import Rng


class Scaffold(LocalAlgorithm):
    """Client i adds c - c_i to each of its gradients; c_i is its own variate, c the server's, both 0 at first.

    A client that moved by u_i in K steps of size lr sets ``c_i <- c_i - c - u_i / (K lr)`` (option II), and the server
    ``c <- c + (n / N) mean_i (c_i's change)``, for n of N clients. All take the same K steps, as in the paper, so the mean
    change is ``-c - R / (K lr)`` with R the mean of the updates: the server reads it off the aggregate, and no second
    vector travels up. So a robust rule, masks and what attackers see cover the variates as they cover the updates, and a
    colluder cannot lie in one apart from the other. Down travels c beside the model: 2 d floats.

    With the mean c stays the mean of all c_i. With another rule it is that rule's estimate of it, and may drift off.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        steps = setup.training.local_steps
        assert steps is not None  # `Training.faults`
        check_kept(setup, "scaffold", setup.task.dim)
        self._scale = -1 / (steps * setup.training.lr)
        self._server = torch.zeros(setup.task.dim)
        self._own: dict[int, Tensor] = {}
        self._new: dict[int, Tensor] = {}

    def begin(self, chosen: Sequence[int]) -> None:
        self._new = {}

    def train(self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Rng, rows: Tensor) -> None:
        corrections = {client: self._server - self._own.get(client, 0) for client in clients}
        task.local_updates(model, clients, replace(plan, corrections=corrections), rng, rows)

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client, update in zip(clients, rows, strict=True):
            self._new[client] = self._own.get(client, 0) - self._server + self._scale * update

    def settle(self, aggregate: Tensor, arrived: Collection[int]) -> Tensor:
        share = len(arrived) / len(self.setup.task.sizes)
        self._server = self._server + share * (self._scale * aggregate - self._server)
        self._own |= {client: self._new[client] for client in arrived if client in self._new}
        return aggregate
