"""Self-reports of nodes: malicious nodes, while they act, report what their attack says."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np
from torch import Tensor

from fedguard.architectures.gossip.place import Matrix
from fedguard.architectures.root import loss_on
from fedguard.contracts import Setup
from fedguard.contracts.returned import check_return, contract_error
from fedguard.simulated.world import World


class SelfReports:
    """Self-reports of the nodes of one training; nobody checks them.

    Attributes:
        acting: the nodes that lie in this round.
    """

    def __init__(self, setup: Setup, world: World) -> None:
        self._setup, self._world = setup, world
        self.acting: frozenset[int] = frozenset()

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
        return np.array([self._claim_value("claim_rate", node, min(rate, most)) for node, rate in enumerate(rates)])

    def examples(self, batches: Sequence[int]) -> Matrix:
        """float64 ``[n]``: claimed number of examples in a step of each node, given its assigned batch."""
        taken = map(min, batches, self._setup.task.sizes)
        return np.array([self._claim_value("claim", node, number) for node, number in enumerate(taken)])

    def weights(self, own: Matrix) -> Matrix:
        """float64 ``[n]``: claimed push-sum weight of each node, given the true ones, ``[n]``."""
        return np.array([self._claim_value("claim_weight", node, float(weight)) for node, weight in enumerate(own)])

    def losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: claimed loss of each node's model (``[n, d]``); infinity if it is not finite."""
        told = [self._claim_value("claim_loss", node, loss) for node, loss in enumerate(self.own_losses(models))]
        return np.array([loss if isfinite(loss) else inf for loss in told])

    def own_losses(self, models: Tensor) -> Matrix:
        """float64 ``[n]``: true mean loss of each node's model on its own examples; infinity if not finite."""
        losses = [loss_on(self._setup, node, model) for node, model in enumerate(models)]
        return np.array([loss if isfinite(loss) else inf for loss in losses])

    def _claim_value(self, method: str, node: int, truth: float) -> float:
        attack = self._setup.attack
        if attack is None or node not in self.acting:
            return truth
        said = check_return(attack, method, getattr(attack, method)(truth), (int, float))
        if not said >= 0 or (said in (0, inf) and method != "claim_loss"):
            raise contract_error(attack, f"{method}: expected a number above 0; got {said}")
        return float(said)
