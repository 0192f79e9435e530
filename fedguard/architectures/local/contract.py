"""What every algorithm is asked for in a round. As it stands here, it changes nothing: that is FedAvg."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from fedguard.contracts import Evaluation, LocalPlan, Setup, Task
from fedguard.rng import Rng


class LocalAlgorithm:
    """One algorithm in one training, with what clients and server keep from round to round.

    In each round `begin`, `train`, `trim`, `note` and `settle` are called in this order; `train` perhaps several times, for the
    honest clients, for the colluders, and for an attack that asks what honest training would give. A round that the
    server abandons is not settled, and leaves no trace.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def begin(self, chosen: Sequence[int]) -> None:
        """A round begins, for these clients."""

    def train(self, task: Task, model: Tensor, clients: Sequence[int], plan: LocalPlan, rng: Rng, rows: Tensor) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what each of the clients would send, trained on ``task`` from ``model``."""
        task.local_updates(model, clients, plan, rng, rows)

    def trim(self, rows: Tensor) -> None:
        """Set what nobody sends of an update to 0, in place."""

    def note(self, clients: Sequence[int], rows: Tensor) -> None:
        """Each of these clients keeps account of the update that it sends, float32 ``[n, d]``."""

    def settle(self, aggregate: Tensor, arrived: Collection[int]) -> Tensor:
        """What the server takes for the aggregate, float32 ``[d]``; these clients' updates are behind it."""
        return aggregate

    def gain(self, n: int) -> float:
        """What the model moves by over ``server_lr`` times the aggregate of n updates, for those who reckon with it."""
        return 1.0

    def evaluate(self, model: Tensor) -> Evaluation:
        """How the global model does on the test examples."""
        return self.setup.task.evaluate(model)
