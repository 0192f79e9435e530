"""SCAFFOLD: variates that take the clients' drift out of their gradients (Karimireddy et al., ICML 2020)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedguard.algorithms.client_state import check_single
from fedguard.contracts import (
    AlgorithmSetup,
    FederatedAlgorithm,
    LocalPlan,
    LocalStatistics,
    RunningAlgorithm,
    Task,
    Training,
)
from fedguard.errors import require
from fedguard.rng import Streams


@dataclass(frozen=True, kw_only=True)
class Scaffold(FederatedAlgorithm):
    """Variates take the clients' drift out of their gradients.

    Client i adds $c - c_i$ to each of its gradients; $c_i$ is its own variate, c the server's, both 0 at first.

    A client with update $u_i$ after K steps of size lr sets $c_i <- c_i - c - u_i / (K lr)$ (option II), and the server
    adds n / N times the mean change of the $c_i$ to c, for n of N clients. All take the same K steps, as in the paper, so the
    mean change is $-c - R / (K lr)$ with R the mean of the updates. The server computes it from the aggregate, so no second
    vector is uploaded: robust rules, masks and the attackers' view apply to variates as they do to updates, and a malicious
    client cannot lie about one without the other. The server sends c beside the model: 2 d floats.

    With the mean as rule, c stays the mean of all $c_i$. With another rule, c is that rule's estimate of the mean, and may
    drift away from it.
    """

    name = "scaffold"
    source = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020"
    keeps_account = True
    keeps = "its variate, of d floats"
    tells = "the server's variate goes to the clients beside the model"

    def check(self, training: Training) -> None:
        require(
            training.local_steps is not None,
            "scaffold lets all clients take the same number of steps; got epochs. Set local_steps, such as local_steps: 10.",
        )
        require(
            not training.momentum,
            "scaffold takes what a client moved by for its mean gradient, which it is not with momentum; set momentum: 0.",
        )
        check_single(self, training)

    def floats_kept(self, task: Task) -> int:
        return task.dim

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _RunningScaffold(setup)


class _RunningScaffold(RunningAlgorithm):
    def __init__(self, setup: AlgorithmSetup) -> None:
        super().__init__(setup)
        steps = setup.cell.training.local_steps
        assert steps is not None  # `Scaffold.check`
        # c_i and c are mean gradients, and an update is -K lr times one
        self._scale = -1 / (steps * setup.cell.training.lr)
        self._server = torch.zeros(setup.task.dim)
        self._own: dict[int, Tensor] = {}
        self._new: dict[int, Tensor] = {}

    def begin(self, chosen: Sequence[int]) -> None:
        self._new = {}

    def train(
        self,
        task: Task,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        rows: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        corrections = {client: self._server - self._own.get(client, 0) for client in clients}
        task.local_updates(model, clients, replace(plan, corrections=corrections), rng, rows, statistics)

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client, update in zip(clients, rows, strict=True):
            # Option II, with the c of this round's start: `note` comes before `settle`
            self._new[client] = self._own.get(client, 0) - self._server + self._scale * update

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        # A client whose update was lost keeps its c_i: otherwise c would not be the mean of all c_i
        share = len(arrived) / len(self.setup.task.sizes)
        self._server = self._server + share * (self._scale * aggregate - self._server)
        self._own |= {client: self._new[client] for client in arrived if client in self._new}
        return aggregate
