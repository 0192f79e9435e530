"""The state that clients keep between rounds, and whether it fits into memory."""

from __future__ import annotations

import os

from fedguard.contracts import FederatedAlgorithm, RunningAlgorithm, Setup, Training
from fedguard.errors import ConfigError, require


def start_algorithm(setup: Setup) -> RunningAlgorithm:
    """The algorithm of a training, before its first round.

    Raises:
        ConfigError: the algorithm cannot run on this task, or the state of its clients does not fit into memory.
    """
    algorithm = setup.cell.training.algorithm
    check_kept(setup, algorithm.name, algorithm.floats_kept(setup.task))
    return algorithm.start(setup)


def check_kept(setup: Setup, what: str, floats: int) -> None:
    """Raise `ConfigError` if ``floats`` numbers of each client that has taken part exceed this machine's memory.

    About ``N (1 - (1 - n/N)^T)`` of N clients take part in T rounds of n clients drawn at random.
    """
    clients, rounds = setup.cell.clients, setup.cell.training.rounds
    kept = clients.total * (1 - (1 - clients.expected / clients.total) ** rounds)
    needed, memory = 4 * floats * kept / 2**30, physical_memory() / 2**30
    if needed > memory:
        raise ConfigError(
            f"{what}: each client that takes part keeps {floats:,} floats, about {kept:,.0f} clients in {rounds} rounds: "
            f"{needed:.1f}G, more than this machine's {memory:.1f}G. Take a smaller model, fewer clients or fedavg."
        )


def check_single(algorithm: FederatedAlgorithm, training: Training) -> None:
    """Raise `ConfigError` if clients send anything but the update of the round, on which the algorithm's state depends."""
    require(
        not training.worker_momentum,
        f"{algorithm.name} keeps account of single updates, and worker_momentum sends a mean over rounds; leave it out.",
    )


def physical_memory() -> float:
    """Physical memory in bytes; infinity if the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows
        return float("inf")
