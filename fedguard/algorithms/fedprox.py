"""FedProx: local steps are pulled back to where they started (Li et al., MLSys 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedguard.contracts import FederatedAlgorithm, LocalPlan, NonNegativeFloat, Training


@dataclass(frozen=True, kw_only=True)
class FedProx(FederatedAlgorithm):
    """FedAvg whose clients are pulled back to the model of the round.

    $mu (w - start)$ is added to each gradient, where start is the model of the round.

    Args:
        mu: weight of the proximal term.
    """

    name = "fedprox"
    source = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020"
    only_updates = True

    mu: NonNegativeFloat = 0.1

    def plan(self, training: Training) -> LocalPlan:
        return replace(super().plan(training), prox=self.mu)
