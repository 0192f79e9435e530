"""FedSGD: each client sends one gradient (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import FederatedAlgorithm, LocalPlan, Training
from fedguard.errors import require


@dataclass(frozen=True, kw_only=True)
class FedSGD(FederatedAlgorithm):
    """Each client sends the negative gradient of one batch; the server adds ``lr * server_lr`` times the aggregate."""

    name = "fedsgd"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    plain_steps = True
    only_updates = True

    def check(self, training: Training) -> None:
        require(
            not training.momentum and training.local_epochs == 1 and not training.local_steps,
            "fedsgd takes one step per round, so local_epochs and momentum do not apply; set worker_momentum for momentum "
            "across rounds.",
        )

    def plan(self, training: Training) -> LocalPlan:
        return LocalPlan(lr=1.0, batch_size=training.batch_size, steps=1)

    def server_step(self, training: Training) -> float:
        return training.server_lr * training.lr

    def lr_alone(self, training: Training) -> float:
        return self.server_step(training)
