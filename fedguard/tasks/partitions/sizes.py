"""How many examples each client gets, where a suite says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedguard.contracts import Partition
from fedguard.errors import ConfigError, require


def client_sizes(owner: Partition, sizes: Sequence[float], examples: int, clients: int) -> list[int]:
    """The number of examples of each client, which add up to all of them.

    Args:
        sizes: proportional to them, one for each client; empty for sizes that differ by one at most. What is left after
            rounding down goes to the clients that lose most by it.

    Raises:
        ConfigError: another number of sizes than clients, or a client without an example.
    """
    require(
        examples >= clients,
        f"{owner.name}: expected at least one example per client; got {examples} for {clients} clients.",
    )
    if not sizes:
        return [len(part) for part in np.array_split(np.arange(examples), clients)]
    if len(sizes) != clients:
        raise ConfigError(
            f"{owner.name}: sizes: expected one for each of {clients} clients; got {len(sizes)}. Set clients.total to "
            f"{len(sizes)}, and task.partition_among to all."
        )
    exact = examples * np.asarray(sizes, dtype=np.float64) / sum(sizes)
    found = np.floor(exact).astype(np.int64)
    most_lost = np.argsort(found - exact, kind="stable")
    found[most_lost[: examples - int(found.sum())]] += 1
    require(
        found.min() > 0,
        f"{owner.name}: sizes: expected an example for each client; of {examples} examples a client with {min(sizes):g} of "
        f"{sum(sizes):g} gets none. Take more examples, or raise its size.",
    )
    return [int(size) for size in found]
