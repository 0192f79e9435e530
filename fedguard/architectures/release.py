"""One aggregation: the rule applied to the rows that arrived, and the report of the round."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fedguard.adapters.model import form_of
from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.root import root_loss, root_update
from fedguard.architectures.rule_context import server_context
from fedguard.contracts import (
    ReceivedRound,
    RoundReport,
    Setup,
    Sight,
    State,
)
from fedguard.contracts.at_clients import backdoor_success
from fedguard.errors import PreconditionError
from fedguard.metrics.aggregate import AggregateMetrics
from fedguard.metrics.distance import measure_aggregate
from fedguard.rows import Rows


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
    if len(received.rows) == 1 and setup.cell.pipeline.rule.by_graph and not setup.cell.pipeline.mixings:
        return Aggregate(received.rows[0].clone(), torch.ones(1, dtype=torch.float64), ({},))
    root = root_update(setup, model, round) if Sight.ROOT_DATA in setup.cell.rule_sees else None
    context = server_context(setup, model, round, received, root=root, root_loss=partial(root_loss, setup))
    try:
        return aggregate(setup.cell.pipeline, _rows(setup, model, received), context, states)
    except PreconditionError as error:
        return str(error)


def _rows(setup: Setup, model: Tensor, received: ReceivedRound) -> Tensor | Rows:
    """What arrived, as the rule sees it."""
    form = form_of(setup.cell.model)
    return received.rows if form is None else form.rows(setup.task.module, model, received.rows)


def report_round(
    setup: Setup,
    clients: Clients,
    model: Tensor,
    round: int,
    received: ReceivedRound,
    result: Aggregate | str | None,
    due: bool,
    *,
    bias: float | None = None,
) -> RoundReport:
    """The report of a round, as far as all architectures have one.

    Args:
        model: float32 ``[d]``, the global model after the round.
        round: from 1. In simulated time it may differ from the round of the sessions, ``received.sent.round``.
        result: the aggregate, or why there is none; None if each node has an aggregate of its own.
        due: whether the model is evaluated; if not, only the current backdoor is given.
        bias: of factors that were averaged apart, as `measure_bias` gives it.
    """
    planted = clients.current_backdoor()
    evaluation = backdoor = metrics = statistics = None
    if due:
        with setup.stopwatch.stage("evaluation"):
            statistics = clients.statistics.for_evaluation(model)
            evaluation = clients.local.evaluate(model, statistics)
            backdoor = backdoor_success(setup.task, setup.honest, model, planted, statistics) if planted else None
        with setup.stopwatch.stage("measuring"):
            metrics = _measure(setup, result, received, bias) if isinstance(result, Aggregate) else None
    return RoundReport(
        round=round,
        model=model,
        clients=received.clients,
        malicious=received.sent.malicious & set(received.clients),
        behind=received.behind,
        assumed_f=received.assumed_f,
        fates=tuple(received.sent.fates.items()),
        excluded=find_excluded_clients(result, received) if isinstance(result, Aggregate) else None,
        abandoned=result if isinstance(result, str) else None,
        evaluation=evaluation,
        aggregate=metrics,
        backdoor=backdoor,
        planted=planted,
        effect=clients.malicious.effect if due else None,
        notes=clients.notes(),
        masked=received.masked,
        statistics=statistics,
        floored=clients.statistics.floored,
    )


def measure_bias(setup: Setup, model: Tensor, received: ReceivedRound) -> float | None:
    """How far mean factors are from the mean of products in a round; None without such adapters, or in simulated time.

    Args:
        model: float32 ``[d]``, from which all clients of the round trained.
    """
    form, sent = form_of(setup.cell.model), received.sent
    if form is None or sent.trainings or not received.behind:
        return None
    here = _find_arrived(received)
    rows = sent.updates if len(here) == len(sent.senders) else sent.updates[here]  # a copy only where some are missing
    return form.bias(setup.task.module, model, rows)


def _find_arrived(received: ReceivedRound) -> list[int]:
    """The rows of the updates that arrived."""
    arrived = set(received.clients)
    return [row for row, client in enumerate(received.sent.senders) if client in arrived]


def _measure(setup: Setup, result: Aggregate, received: ReceivedRound, bias: float | None) -> AggregateMetrics | None:
    form, sent = form_of(setup.cell.model), received.sent
    if form is not None and form.of_products:
        return None  # the same adapter has other factors after the round, so that coordinates say nothing
    here = _find_arrived(received)
    honest = [row for row in here if sent.senders[row] not in sent.malicious]
    malicious = [row for row in here if sent.senders[row] in sent.malicious]
    metrics = measure_aggregate(result.vector, sent.updates, honest, malicious)
    return metrics if metrics is None or bias is None else {**metrics, "factor_bias": bias}


def find_excluded_clients(result: Aggregate, received: ReceivedRound) -> tuple[int, ...] | None:
    """The clients with weight 0 (below $10^-9$ of the largest); None if the rule has no weights."""
    if result.weights is None:
        return None
    weights = [abs(weight) for weight in result.weights.tolist()]
    least = 1e-9 * max(weights)
    rows = [row for row, weight in zip(received.behind, weights, strict=True) if weight <= least]
    in_rows = {client for row in received.behind for client in row}
    # Of sums: those whom the protocol has left out of all. A single update without a row was not finite
    left_out = [client for client in received.clients if received.masked and client not in in_rows]
    return (*left_out, *(client for row in rows for client in row))
