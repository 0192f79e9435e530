"""Federated algorithms, one file each; `fedguard.contracts.federated` has what they have in common."""

from __future__ import annotations

from fedguard.algorithms.client_state import check_kept
from fedguard.contracts import RunningAlgorithm, Setup

ALGORITHMS = {
    "fedavg": "fedguard.algorithms.fedavg:FedAvg",
    "fedsgd": "fedguard.algorithms.fedsgd:FedSGD",
    "fedprox": "fedguard.algorithms.fedprox:FedProx",
    "scaffold": "fedguard.algorithms.scaffold:Scaffold",
    "fednova": "fedguard.algorithms.fednova:FedNova",
    "feddyn": "fedguard.algorithms.feddyn:FedDyn",
    "fedper": "fedguard.algorithms.fedper:FedPer",
    "actor_critic": "fedguard.algorithms.rl.actor_critic:ActorCritic",
    "fedpg": "fedguard.algorithms.rl.fedpg:FedPG",
    "double_dqn": "fedguard.algorithms.rl.double_dqn:DoubleDQN",
    "recurrent_dqn": "fedguard.algorithms.rl.recurrent_dqn:RecurrentDQN",
    "dreaming": "fedguard.algorithms.rl.dreaming:Dreaming",
    "vtrace": "fedguard.algorithms.rl.vtrace:VTrace",
}


def start_algorithm(setup: Setup) -> RunningAlgorithm:
    """The algorithm of a training, before its first round.

    Raises:
        ConfigError: the algorithm cannot run on this task, or the state of its clients does not fit into memory.
    """
    algorithm = setup.cell.algorithm
    check_kept(setup, algorithm.name, algorithm.floats_kept(setup.task))
    return algorithm.start(setup)
