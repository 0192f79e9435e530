"""FedDyn: a regularizer that grows until the clients' optima are the global one (Acar et al., ICLR 2021)."""

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
    PositiveFloat,
    RunningAlgorithm,
    Task,
    Training,
)
from fedguard.errors import require
from fedguard.rng import Streams


@dataclass(frozen=True, kw_only=True)
class FedDyn(FederatedAlgorithm):
    """A regularizer grows until the clients' optima are the global one.

    Client i descends its loss $L_i(w) - <g_i, w> + alpha/2 |w - start|^2$; $g_i$ and the server's h are 0 at first.

    A client with update $u_i$ sets $g_i <- g_i - alpha u_i$. With the aggregate R of n of N clients, the server sets
    $h <- h - alpha (n / N) R$ and moves by $R - h / alpha$. The server computes h from the aggregate, so no second vector is
    sent: robust rules, masks and the attackers' view apply to h as they do to updates.

    Args:
        alpha: the weight of the regularizer.
    """

    name = "feddyn"
    source = "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021"
    keeps_account = True
    keeps = "its g_i, of d floats"

    alpha: PositiveFloat = 0.1

    def check(self, training: Training) -> None:
        check_single(self, training)
        require(
            training.server_lr == 1 and not training.server_momentum and training.server_optimizer is None,
            "feddyn has a server step of its own; leave out server_lr, server_momentum and server_optimizer.",
        )

    def plan(self, training: Training) -> LocalPlan:
        return replace(super().plan(training), prox=self.alpha)

    def floats_kept(self, task: Task) -> int:
        return task.dim

    def start(self, setup: AlgorithmSetup) -> RunningAlgorithm:
        return _RunningFedDyn(setup, self.alpha)


class _RunningFedDyn(RunningAlgorithm):
    def __init__(self, setup: AlgorithmSetup, alpha: float) -> None:
        super().__init__(setup)
        self._alpha = alpha
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
        corrections = {client: -self._own[client] for client in clients if client in self._own}
        task.local_updates(model, clients, replace(plan, corrections=corrections), rng, rows, statistics)

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        for client, update in zip(clients, rows, strict=True):
            self._new[client] = self._own.get(client, 0) - self._alpha * update

    def settle(self, aggregate: Tensor, arrived: Collection[int], model: Tensor) -> Tensor:
        # Algorithm 1 updates h first, and the model moves by the new h. A client keeps its new g_i only if its update arrived:
        # with honest clients and an unweighted mean, h stays the mean of all g_i
        share = len(arrived) / len(self.setup.task.sizes)
        self._server = self._server - self._alpha * share * aggregate
        self._own |= {client: self._new[client] for client in arrived if client in self._new}
        return aggregate - self._server / self._alpha

    def gain(self, n: int) -> float:
        # -h / alpha contains n / N times the new aggregate
        return 1 + n / len(self.setup.task.sizes)
