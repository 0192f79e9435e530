"""A3C: actors that nobody waits for send the gradients of a few steps (Mnih et al., ICML 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.architectures.systems.learner import Learner
from fedguard.contracts import Participation
from fedguard.simulated.barriers import Barrier, asp


@dataclass(frozen=True, kw_only=True)
class A3C(Learner):
    """Asynchronous advantage actor-critic: each actor pulls the model, acts for ``t_max`` steps, and pushes its gradient.

    $w <- w + eta S(-g_i / n)$ for the gradient $g_i$ of each of n actors as it comes, whatever has become of the model
    meanwhile; S is the server's optimizer. It is `parameter_server(consistency='eventual')` with actors for clients.

    Each gradient is an aggregate of its own, so the rule sees one row at a time: robust rules need `a2c` or `fedbuff`.
    """

    name = "a3c"
    source = "Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, ICML 2016"

    @property
    def more_rows(self) -> str:
        return "Here each gradient is an aggregate of its own: use mean, a2c, or fedbuff."

    def barrier(self, clients: Participation) -> Barrier:
        return asp()

    def gain(self, clients: Participation) -> float:
        return 1 / clients.expected
