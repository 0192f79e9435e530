"""What can be told of a round by one who sees everything: how good its aggregate is, and whom it left out."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity

from fedguard.aggregation import Aggregate
from fedguard.architectures.masking import Received
from fedguard.architectures.wire import Wire


def excluded(result: Aggregate | str, received: Received) -> tuple[int, ...] | None:
    """The clients that got no weight; None where the rule gives no weights, or the round was abandoned."""
    if isinstance(result, str) or result.weights is None:
        return None
    none = result.weights.abs() <= 1e-9 * result.weights.abs().max()
    rows = [row for row, out in zip(received.behind, none.tolist(), strict=True) if out]
    return (*received.excluded, *(client for row in rows for client in row))


def measured(result: Aggregate | str, received: Received) -> dict[str, float | None]:
    """How far the aggregate lies from the mean of the honest updates, and how long the hostile ones are beside them."""
    wire, arrived = received.truth, set(received.clients)
    rows = [row for row, client in enumerate(wire.clients) if client in arrived and client not in wire.hostile]
    if isinstance(result, str) or len(rows) < 2:
        return {"kappa": None, "cosine": None}
    honest = wire.updates[rows].double()
    mean, answer = honest.mean(0), result.vector.double()
    spread = (honest - mean).square().sum(1).mean()
    kappa = float((answer - mean).square().sum() / spread) if spread > 0 else None
    cosine = float(cosine_similarity(answer, mean, dim=0))
    hostile = wire.hostile & arrived
    return {"kappa": kappa, "cosine": cosine, "hostile_length": _relative_length(wire, hostile, honest)}


def _relative_length(wire: Wire, hostile: frozenset[int], honest: Tensor) -> float | None:
    rows = [row for row, client in enumerate(wire.clients) if client in hostile]
    usual = float(honest.norm(dim=1).mean())
    return float(wire.updates[rows].double().norm(dim=1).mean()) / usual if rows and usual else None
