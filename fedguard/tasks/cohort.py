"""Trains all chosen clients of a round at once, by exact SGD.

One interface, several engines: `engines.dense` batches MLPs over clients, `engines.conv` trains plain convolutional networks,
`engines.module` any other network, client by client on one flat buffer. All follow the same schedules and agree with a plain
loop (``examples/plain_loop.py``).
`engines.private` trains with differential privacy.

An engine computes on the device of its examples. With a CUDA device (`fedguard.tasks.compute`) this module is the boundary: it
moves the examples to the device once, the model and the plan in each round, and the updates back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.contracts import Examples, LocalPlan, LocalStatistics
from fedguard.rng import Rng, Streams
from fedguard.tasks.engines.conv import ConvEngine
from fedguard.tasks.engines.conv_shapes import conv_shapes
from fedguard.tasks.engines.dense import DenseEngine
from fedguard.tasks.engines.module import ModuleEngine
from fedguard.tasks.network import FlatNetwork
from fedguard.tasks.statistics import join_single

if TYPE_CHECKING:
    from fedguard.tasks.engines.private import PrivateEngine

#: Which of its examples a client uses in each step: int64 ``[steps, batch]``, -1 where a batch is smaller.
Schedule = NDArray[np.int64]


class Engine(Protocol):
    """Trains some clients by given schedules."""

    def train(
        self, model: Tensor, clients: Sequence[int], schedules: Sequence[Schedule], plan: LocalPlan, out: Tensor
    ) -> None:
        """Write each client's update into its row of ``out``, float32 ``[n, d]``.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
        """


class Cohort:
    """The data of all clients, and the engine that fits the network."""

    def __init__(self, network: FlatNetwork, parts: Sequence[Examples]) -> None:
        self.sizes = [len(part) for part in parts]
        self._device = network.compute.device
        parts = [part.replace(x=part.x.to(self._device), y=part.y.to(self._device)) for part in parts]
        self._general = ModuleEngine(network, parts)
        self._engine: Engine = self._general
        if network.widths:
            self._engine = DenseEngine(network.widths, parts, network.compute)
        elif network.by_cross_entropy and (shapes := conv_shapes(network.module, network.shape)):
            self._engine = ConvEngine(shapes, parts, network.compute)
        self._network, self._parts = network, parts

    @cached_property
    def _private(self) -> PrivateEngine:
        from fedguard.tasks.engines.private import PrivateEngine  # opacus takes more than a second to load

        return PrivateEngine(self._network, self._parts)

    def train(
        self,
        model: Tensor,
        clients: Sequence[int],
        plan: LocalPlan,
        rng: Streams,
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        """Train ``clients`` and write their updates into ``out``; client i draws only from ``rng.child("client", i)``.

        Args:
            model: float32 ``[d]``, from which all start, or ``[n, d]``, a row for each.
            rng: one stream for all clients, or one for each.
            statistics: where running statistics start and are written; None for initial ones that nobody asks for.
        """
        streams = [
            one.child("client", client)
            for one, client in zip([rng] * len(clients) if isinstance(rng, Rng) else rng, clients, strict=True)
        ]
        schedules = [
            schedule(plan.of(client), self.sizes[client], plan.batch_stream(one).numpy(), plan.share(client))
            for client, one in zip(clients, streams, strict=True)
        ]
        if self._network.couples:
            schedules = [join_single(batches, self._network.name) for batches in schedules]
        if self._device.type == "cpu":
            self._train(model, clients, schedules, plan, streams, out, statistics)
        else:
            self._train_there(model, clients, schedules, plan, streams, out, statistics)

    def _train_there(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[Schedule],
        plan: LocalPlan,
        streams: Sequence[Rng],
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        """Train on the device, with as many clients at a time as updates fit into the engines' memory."""
        together = max(1, self._network.compute.floats // model.shape[-1])
        for first in range(0, len(clients), together):
            some = slice(first, first + together)
            moved = torch.empty_like(out[some], device=self._device)
            start = model if model.dim() == 1 else model[some]
            self._train(
                start.to(self._device),
                clients[some],
                schedules[some],
                self._move_plan(plan, clients[some]),
                streams[some],
                moved,
                statistics and statistics.select(some),
            )
            out[some].copy_(moved)

    def _move_plan(self, plan: LocalPlan, clients: Sequence[int]) -> LocalPlan:
        """The plan with these clients' corrections on the device; ``adjust`` and ``project`` still run in main memory."""
        given = plan.corrections
        return replace(
            plan,
            corrections=given and {client: given[client].to(self._device) for client in clients if client in given},
            adjust=plan.adjust and self._crossing(plan.adjust),
            project=plan.project and self._crossing(plan.project),
        )

    def _crossing(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *there: function(*(tensor.cpu() for tensor in there)).to(self._device)

    def _train(
        self,
        model: Tensor,
        clients: Sequence[int],
        schedules: Sequence[Schedule],
        plan: LocalPlan,
        streams: Sequence[Rng],
        out: Tensor,
        statistics: LocalStatistics | None = None,
    ) -> None:
        if plan.private is not None:
            self._private.train(model, clients, schedules, plan, out, streams)
            return
        if self._engine is self._general or plan.adjust is not None or plan.project is not None:
            self._general.train(model, clients, schedules, plan, out, statistics)
        else:  # of networks without running statistics
            self._engine.train(model, clients, schedules, plan, out)


def schedule(plan: LocalPlan, size: int, draw: np.random.Generator, share: float = 1.0) -> Schedule:
    """The batches of one client with ``size`` examples: fresh permutations for epochs, fresh draws for steps.

    In private training each example is in each batch with probability q, independently. A client that does only a ``share`` of
    its work takes the same first batches, and then stops.
    """
    batches = _whole(plan, size, draw)
    return batches if share >= 1 else _truncate_batches(batches, share)


def _truncate_batches(batches: Schedule, share: float) -> Schedule:
    """The first batches, up to a share of all examples, rounded down, and at least one; the last may be smaller."""
    used = batches >= 0
    # 1e-9, since a share such as 0.29 of 100 is just below 29 as a float
    kept = used & (used.cumsum().reshape(used.shape) <= max(1, int(share * used.sum() + 1e-9)))
    return np.where(kept, batches, -1)[kept.any(axis=1)]


def _whole(plan: LocalPlan, size: int, draw: np.random.Generator) -> Schedule:
    if plan.private is not None:
        return _poisson(draw.random((plan.private_steps(plan.private.sample_rate), size)) < plan.private.sample_rate)
    batch = size if plan.batch_size is None else min(plan.batch_size, size)
    if plan.steps is not None:
        return np.stack([draw.permutation(size)[:batch] for _ in range(plan.steps)])
    steps = -(-size // batch)
    orders = np.full((plan.epochs or 1, steps * batch), -1)
    for order in orders:
        order[:size] = draw.permutation(size)
    return orders.reshape(-1, batch)


def _poisson(taken: NDArray[np.bool_]) -> Schedule:
    """The schedule of bool ``[steps, size]``, the examples drawn in each step; batches may be empty."""
    batches = np.full((len(taken), int(taken.sum(axis=1).max())), -1)
    for batch, of_step in zip(batches, taken, strict=True):
        batch[: of_step.sum()] = np.flatnonzero(of_step)
    return batches
