"""Measurements of a round that need every update: the aggregate's deviation, and the clients that it excluded."""

from __future__ import annotations

import torch
from torch.nn.functional import cosine_similarity

from fedguard.aggregation import Aggregate
from fedguard.contracts import ReceivedRound
from fedguard.kernels import LONG_BYTES, walk


def find_excluded_clients(result: Aggregate | str, received: ReceivedRound) -> tuple[int, ...] | None:
    """The clients with weight 0 (below $10^-9$ of the largest); None if the rule has no weights or the round was abandoned."""
    if isinstance(result, str) or result.weights is None:
        return None
    weights = [abs(weight) for weight in result.weights.tolist()]
    least = 1e-9 * max(weights)
    rows = [row for row, weight in zip(received.behind, weights, strict=True) if weight <= least]
    return (*received.excluded, *(client for row in rows for client in row))


def measure_aggregate(result: Aggregate | str, received: ReceivedRound) -> dict[str, float | None]:
    """`RoundReport.kappa`, `RoundReport.cosine` and `RoundReport.malicious_length` of an aggregate.

    Computed in float64, in blocks of columns, so that no second ``[n, d]`` matrix is made. The values are None if the round
    was abandoned or has fewer than two honest updates.
    """
    wire, arrived = received.truth, set(received.clients)
    here = [row for row, client in enumerate(wire.clients) if client in arrived]
    honest = [row for row in here if wire.clients[row] not in wire.malicious]
    malicious = [row for row in here if wire.clients[row] in wire.malicious]
    if isinstance(result, str) or len(honest) < 2:
        return {"kappa": None, "cosine": None}
    mean = torch.empty(wire.updates.shape[1], dtype=torch.float64)
    around = torch.zeros(len(honest), dtype=torch.float64)
    lengths = torch.zeros(len(wire.updates), dtype=torch.float64)
    for block in walk(wire.updates, size=LONG_BYTES):
        rows = wire.updates[:, block].double()
        lengths = torch.hypot(lengths, rows.norm(dim=1))
        rows = rows[honest]
        mean[block] = rows.mean(0)
        around += rows.sub_(mean[block]).square_().sum(1)
    answer, spread, usual = result.vector.double(), around.mean(), float(lengths[honest].mean())
    return {
        "kappa": float((answer - mean).square_().sum() / spread) if spread > 0 else None,
        "cosine": float(cosine_similarity(answer, mean, dim=0)),
        "malicious_length": float(lengths[malicious].mean()) / usual if malicious and usual else None,
    }
