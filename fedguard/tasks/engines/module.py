"""Any network: client by client, with the parameters as views of one flat buffer and no optimizer object."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Examples, LocalPlan, LocalStatistics
from fedguard.contracts.tasks import select_trained
from fedguard.tasks.engines.parallel import spread
from fedguard.tasks.network import FlatNetwork, duplicate
from fedguard.tasks.statistics import NetworkStatistics


class ModuleEngine:
    """SGD by automatic differentiation: ``v <- m v + g + mu (w - start) + R``, ``w <- w - lr v``."""

    def __init__(self, network: FlatNetwork, parts: Sequence[Examples]) -> None:
        self._network, self._parts = network, parts
        self._idle: SimpleQueue[_ModuleWorker] = SimpleQueue()

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[NDArray[np.int64]],
        plan: LocalPlan,
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        def train_one(number: int) -> None:
            worker, client = self._worker(), clients[number]
            start = model if model.dim() == 1 else model[number]
            correction = (plan.corrections or {}).get(client)
            worker.flat.copy_(start)
            worker.statistics.begin(statistics, number)
            if plan.one_step:
                worker.step(self._parts[client], schedules[number][0], plan, correction, out[number])
            else:
                worker.descend(self._parts[client], schedules[number], plan, start, correction)
                torch.sub(worker.flat, start, out=out[number])
            worker.statistics.end(statistics, number)
            self._idle.put(worker)

        numbers = range(len(clients))
        if plan.adjust is None and plan.project is None:
            spread(train_one, numbers)
        else:  # what a client does to its own steps may not bear several threads
            for number in numbers:
                train_one(number)

    def _worker(self) -> _ModuleWorker:
        """A worker with a copy of the network that no other thread uses."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return _ModuleWorker(self._network, self._parts[0].x.device)


class _ModuleWorker:
    """A copy of the network, on which one client at a time trains."""

    def __init__(self, network: FlatNetwork, where: torch.device) -> None:
        self._module, self.flat = duplicate(network.module, where)
        self.statistics = NetworkStatistics(self._module)
        self._loss = network.loss
        self._parameters = list(select_trained(self._module).values())
        self._weights = [parameter.data for parameter in self._parameters]

    def step(
        self, examples: Examples, batch: NDArray[np.int64], plan: LocalPlan, correction: Tensor | None, out: Tensor
    ) -> None:
        """Write the only step, ``-lr (g + R)``, into ``out``: momentum and the proximal term are 0 at the start."""
        torch.cat([part.reshape(-1) for part in self._gradient(examples, batch, plan, self.flat)], out=out)
        if correction is not None:
            out.add_(correction)
        out.mul_(-plan.lr)

    def descend(
        self, examples: Examples, schedule: NDArray[np.int64], plan: LocalPlan, start: Tensor, correction: Tensor | None
    ) -> None:
        velocity = torch.zeros_like(start)
        moving = self._views(velocity)
        for batch in schedule:
            change = self._gradient(examples, batch, plan, start)
            if plan.momentum:
                velocity.mul_(plan.momentum)
                self._pull(velocity, 1.0, plan, start, correction)
                torch._foreach_add_(moving, change, alpha=1)
                self.flat.sub_(velocity, alpha=plan.lr)
            else:
                # Before the weights move by the loss: the pull is taken at the weights at which the gradient was
                self._pull(self.flat, -plan.lr, plan, start, correction)
                torch._foreach_add_(self._weights, change, alpha=-plan.lr)
            if plan.project is not None:
                # A copy, so that code of the user's own neither changes nor keeps the live weights
                self.flat.copy_(plan.project(self.flat.clone(), start))

    def _gradient(
        self, examples: Examples, batch: NDArray[np.int64], plan: LocalPlan, start: Tensor
    ) -> tuple[Tensor, ...]:
        """The gradient of a batch's mean loss, as the client adjusts it, in the shapes of the parameters."""
        rows = torch.from_numpy(batch[batch >= 0]).to(start.device)
        loss = self._loss(self._module(examples.x[rows]), examples.y[rows])
        change = torch.autograd.grad(loss, self._parameters)
        if plan.adjust is None:
            return change
        flat = torch.cat([part.reshape(-1) for part in change])
        return self._views(plan.adjust(self.flat.clone(), start, flat))

    def _pull(self, moving: Tensor, factor: float, plan: LocalPlan, start: Tensor, correction: Tensor | None) -> None:
        """Add ``mu (w - start) + R`` times ``factor``."""
        if plan.prox:
            moving.add_(self.flat - start, alpha=factor * plan.prox)
        if correction is not None:
            moving.add_(correction, alpha=factor)

    def _views(self, flat: Tensor) -> tuple[Tensor, ...]:
        """The parts of a vector ``[d]`` in the shapes of the parameters."""
        parts = torch.split(flat, [weight.numel() for weight in self._weights])
        return tuple(part.view_as(weight) for part, weight in zip(parts, self._weights, strict=True))
