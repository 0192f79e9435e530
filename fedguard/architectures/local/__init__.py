"""Federated algorithms, one file each; what they have in common is told in `fedguard.contracts.federated`."""

from __future__ import annotations

from fedguard.architectures.local.kept import check_kept
from fedguard.contracts import RunningAlgorithm, Setup

ALGORITHMS = {
    "fedavg": "fedguard.contracts.federated:FedAvg",
    "fedsgd": "fedguard.architectures.local.fedsgd:FedSGD",
    "fedprox": "fedguard.architectures.local.fedprox:FedProx",
    "scaffold": "fedguard.architectures.local.scaffold:Scaffold",
    "fednova": "fedguard.architectures.local.fednova:FedNova",
    "feddyn": "fedguard.architectures.local.feddyn:FedDyn",
    "fedper": "fedguard.architectures.local.fedper:FedPer",
    "actor_critic": "fedguard.architectures.local.actor_critic:ActorCritic",
    "fedpg": "fedguard.architectures.local.fedpg:FedPG",
    "double_dqn": "fedguard.architectures.local.double_dqn:DoubleDQN",
    "recurrent_dqn": "fedguard.architectures.local.recurrent_dqn:RecurrentDQN",
    "dreaming": "fedguard.architectures.local.dreaming:Dreaming",
    "vtrace": "fedguard.architectures.local.vtrace:VTrace",
}


def start_algorithm(setup: Setup) -> RunningAlgorithm:
    """The algorithm of a training, before its first round.

    Raises:
        ConfigError: it cannot be run on this task, or there is no memory for what its clients keep.
    """
    algorithm = setup.training.algorithm
    check_kept(setup, algorithm.name, algorithm.floats_kept(setup.task))
    return algorithm.start(setup)
