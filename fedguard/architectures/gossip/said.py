"""Self-reports of nodes: malicious nodes, while they act, report what their attack says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
from torch import Tensor

from fedguard.architectures.gossip.place import Matrix
from fedguard.architectures.root import loss_on
from fedguard.contracts import Setup
from fedguard.contracts.channels import LOSS, RATE, SAMPLES, WEIGHT
from fedguard.contracts.lying import Channel
from fedguard.simulated.world import World


class SelfReports:
    """Self-reports of the nodes of one training; nobody checks them.

    Attributes:
        round: the current round; malicious nodes lie in those in which they act.
    """

    def __init__(self, setup: Setup, world: World) -> None:
        self._setup, self._world = setup, world
        self.round = 0

    @property
    def samples(self) -> Matrix:
        """float64 ``[n]``: claimed number of examples of each node."""
        return np.array(self._setup.claims, dtype=np.float64)

    @property
    def rates(self) -> Matrix:
        """float64 ``[n]``: claimed number of examples a second of each node; all equal if computing takes no time."""
        rates = self._world.rates
        limits = [rate for rate in rates if rate < inf]
        most = max(limits, default=1.0)
        return self._ask(RATE, (min(rate, most) for rate in rates))

    def examples(self, batches: Sequence[int]) -> Matrix:
        """float64 ``[n]``: claimed number of examples in a step of each node, given its assigned batch."""
        taken = map(min, batches, self._setup.task.sizes)
        return self._ask(SAMPLES, taken)

    def weights(self, own: Matrix) -> Matrix:
        """float64 ``[n]``: claimed push-sum weight of each node, given the true ones, ``[n]``."""
        return self._ask(WEIGHT, map(float, own))

    def losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: claimed loss of each node's model (``[n, d]``); infinity if it is not finite."""
        return self._ask(LOSS, map(float, self.own_losses(models)))

    def own_losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: true mean loss of each node's model on its own examples; infinity if not finite."""
        losses = [loss_on(self._setup, node, model) for node, model in enumerate(models)]
        return np.array([loss if isfinite(loss) else inf for loss in losses])

    def _ask(self, channel: Channel[Any, []], truths: Iterable[float]) -> Matrix:
        """float64 ``[n]``: what each node reports, given the true values."""
        reports = [self._setup.report(channel, node, truth, self.round) for node, truth in enumerate(truths)]
        return np.array(reports, dtype=np.float64)
