"""A2C: actors in step send the gradients of a few steps (the synchronous form of Mnih et al., ICML 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.architectures.systems.learner import Learner
from fedguard.contracts import Participation
from fedguard.simulated.barriers import Barrier, bsp


@dataclass(frozen=True, kw_only=True)
class A2C(Learner):
    """Advantage actor-critic in step: all actors act by the same model, and the rule aggregates their gradients.

    $w <- w + eta S(R(-g_1, ..., -g_n))$ with the rule R of the cell. It is `parameter_server` with actors for clients, and
    A3C without asynchrony: a step takes as long as the slowest actor.
    """

    name = "a2c"
    source = "Mnih et al., ICML 2016; the synchronous form of OpenAI Baselines, 2017"

    def barrier(self, clients: Participation) -> Barrier:
        return bsp(clients.most)
