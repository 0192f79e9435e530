"""One aggregation: the rule applied to the rows that arrived, and the report of the round."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from typing_extensions import TypedDict, Unpack

from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.root import root_loss, root_update
from fedguard.architectures.rule_context import server_context
from fedguard.contracts import (
    Fate,
    NodesReport,
    ReceivedRound,
    RoundObservation,
    RoundReport,
    RoundTiming,
    SentRound,
    Setup,
    Sight,
    State,
)
from fedguard.contracts.at_clients import backdoor_success
from fedguard.errors import PreconditionError
from fedguard.metrics.aggregate import AggregateMetrics
from fedguard.metrics.distance import measure_aggregate


def release_aggregate(
    setup: Setup, model: Tensor, round: int, received: ReceivedRound, states: tuple[State, ...]
) -> Aggregate | str:
    """Apply the rule to what the server received.

    Args:
        model: float32 ``[d]``, the global model before the round.
        states: state of each stage of the pipeline, from the previous round.

    Returns:
        the aggregate, or the reason why the round is abandoned: nothing arrived, or too few rows for the rule.
    """
    if not received.behind:
        return received.why
    if len(received.rows) == 1 and setup.cell.pipeline.rule.keeps_one and not setup.cell.pipeline.mixings:
        return Aggregate(received.rows[0].clone(), torch.ones(1, dtype=torch.float64), ({},))
    root = root_update(setup, model, round) if Sight.ROOT_DATA in setup.cell.rule_sees else None
    context = server_context(setup, model, round, received, root=root, root_loss=partial(root_loss, setup))
    try:
        return aggregate(setup.cell.pipeline, received.rows, context, states)
    except PreconditionError as error:
        return str(error)


def report_round(
    setup: Setup,
    clients: Clients,
    model: Tensor,
    round: int,
    sent: SentRound,
    received: ReceivedRound,
    result: Aggregate | str,
    due: bool,
    **more: Unpack[RoundFacts],
) -> RoundReport:
    """The report of a round with one aggregate.

    Args:
        model: float32 ``[d]``, the global model after the round.
        round: from 1. In simulated time it may differ from the round of the sessions, ``sent.round``.
        due: whether the round is evaluated; if not, only the current backdoor is given.
        more: what the architecture alone knows.
    """
    more.setdefault("fates", tuple(sent.fates.items()))
    planted = clients.malicious.current_backdoor()
    evaluation = backdoor = metrics = statistics = None
    if due:
        with setup.stopwatch.stage("evaluation"):
            statistics = clients.statistics.for_evaluation(model)
            evaluation = clients.local.evaluate(model, statistics)
            backdoor = backdoor_success(setup.task, setup.honest, model, planted, statistics) if planted else None
        with setup.stopwatch.stage("measuring"):
            metrics = None if isinstance(result, str) else _measure(result, received)
    return RoundReport(
        round=round,
        model=model,
        clients=received.clients,
        malicious=sent.wire.malicious & set(received.clients),
        behind=received.behind,
        assumed_f=received.assumed_f,
        excluded=find_excluded_clients(result, received),
        abandoned=result if isinstance(result, str) else None,
        evaluation=evaluation,
        aggregate=metrics,
        backdoor=backdoor,
        planted=planted,
        effect=clients.malicious.effect if due else None,
        notes=clients.malicious.notes(),
        masked=received.masked,
        statistics=statistics,
        floored=clients.statistics.floored,
        **more,
    )


class RoundFacts(TypedDict, total=False):
    """Fields of a `RoundReport` that differ between architectures."""

    banned: tuple[int, ...]
    chosen: tuple[int, ...]
    fates: tuple[tuple[int, Fate], ...]
    clip: float | None
    watched: tuple[RoundObservation, ...]
    moment: RoundTiming | None
    nodes: NodesReport


def _measure(result: Aggregate, received: ReceivedRound) -> AggregateMetrics | None:
    wire, arrived = received.truth, set(received.clients)
    here = [row for row, client in enumerate(wire.clients) if client in arrived]
    honest = [row for row in here if wire.clients[row] not in wire.malicious]
    malicious = [row for row in here if wire.clients[row] in wire.malicious]
    return measure_aggregate(result.vector, wire.updates, honest, malicious)


def find_excluded_clients(result: Aggregate | str, received: ReceivedRound) -> tuple[int, ...] | None:
    """The clients with weight 0 (below $10^-9$ of the largest); None if the rule has no weights or the round was abandoned."""
    if isinstance(result, str) or result.weights is None:
        return None
    weights = [abs(weight) for weight in result.weights.tolist()]
    least = 1e-9 * max(weights)
    rows = [row for row, weight in zip(received.behind, weights, strict=True) if weight <= least]
    left_out = received.masked.left_out if received.masked else ()
    return (*left_out, *(client for row in rows for client in row))
