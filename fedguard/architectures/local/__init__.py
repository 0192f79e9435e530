"""What an algorithm adds to FedAvg, at the clients and at the server: one file each, and one row in the table."""

from __future__ import annotations

from fedguard.architectures.local.contract import LocalAlgorithm
from fedguard.architectures.local.feddyn import FedDyn
from fedguard.architectures.local.fednova import FedNova
from fedguard.architectures.local.fedper import FedPer
from fedguard.architectures.local.scaffold import Scaffold
from fedguard.contracts import Setup

#: FedAvg and FedSGD are their `LocalPlan`, and so is FedProx (Li et al., Federated Optimization in Heterogeneous Networks,
#: MLSys 2020), whose mu (w - start) is the plan's ``prox``.
ALGORITHMS: dict[str, type[LocalAlgorithm]] = {
    "fedsgd": LocalAlgorithm,
    "fedavg": LocalAlgorithm,
    "fedprox": LocalAlgorithm,
    "scaffold": Scaffold,
    "fednova": FedNova,
    "feddyn": FedDyn,
    "fedper": FedPer,
}


def local_algorithm(setup: Setup) -> LocalAlgorithm:
    """The algorithm of a training, before its first round."""
    return ALGORITHMS[setup.training.algorithm](setup)


__all__ = ["ALGORITHMS", "LocalAlgorithm", "local_algorithm"]
