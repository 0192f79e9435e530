"""Federated algorithms, one file each; `fedguard.contracts.federated` has what they have in common."""

ALGORITHMS = {
    "fedavg": "fedguard.algorithms.fedavg:FedAvg",
    "fedsgd": "fedguard.algorithms.fedsgd:FedSGD",
    "fedprox": "fedguard.algorithms.fedprox:FedProx",
    "scaffold": "fedguard.algorithms.scaffold:Scaffold",
    "fednova": "fedguard.algorithms.fednova:FedNova",
    "feddyn": "fedguard.algorithms.feddyn:FedDyn",
    "fedper": "fedguard.algorithms.fedper:FedPer",
    "fedbn": "fedguard.algorithms.fedbn:FedBN",
    "actor_critic": "fedguard.algorithms.rl.actor_critic:ActorCritic",
    "fedpg": "fedguard.algorithms.rl.fedpg:FedPG",
    "double_dqn": "fedguard.algorithms.rl.double_dqn:DoubleDQN",
    "recurrent_dqn": "fedguard.algorithms.rl.recurrent_dqn:RecurrentDQN",
    "dreaming": "fedguard.algorithms.rl.dreaming:Dreaming",
    "vtrace": "fedguard.algorithms.rl.vtrace:VTrace",
}
