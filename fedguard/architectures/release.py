"""One aggregation: the rule applied to the rows that arrived, and the metrics of the new model and the aggregate."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.architectures.aggregate_metrics import measure_aggregate
from fedguard.architectures.clients import Clients
from fedguard.architectures.root import root_loss, root_update
from fedguard.architectures.rule_context import noise_of, rule_context, times_of
from fedguard.contracts import ReceivedRound, Setup, Sight, State
from fedguard.errors import PreconditionError


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
    single = [client for row in received.behind for client in row] if not received.of_groups else None
    context = rule_context(setup, model, round, received.told).restrict(
        "server",
        setup.cell.rule_sees,
        clients=None if single is None else tuple(single),
        samples=received.samples,
        noise=None if single is None else noise_of(setup, single),
        **times_of(setup, received),
        root=root,
        root_loss=partial(root_loss, setup),
    )
    try:
        return aggregate(setup.cell.pipeline, received.rows, context, states)
    except PreconditionError as error:
        return str(error)


def figures(
    setup: Setup, clients: Clients, model: Tensor, result: Aggregate | str, received: ReceivedRound, due: bool
) -> dict[str, Any]:
    """The fields of a `RoundReport` that evaluate the new model and the aggregate.

    Args:
        due: whether the round is evaluated; if not, only the current backdoor is given.
    """
    planted = clients.malicious.current_backdoor()
    if not due:
        return {"evaluation": None, "kappa": None, "cosine": None, "backdoor": None, "planted": planted}
    with setup.stopwatch.stage("evaluation"):
        evaluation = clients.local.evaluate(model)
        backdoor = setup.task.backdoor_success(model, *planted) if planted else None
    with setup.stopwatch.stage("measuring"):
        found = measure_aggregate(result, received)
    return {"evaluation": evaluation, "backdoor": backdoor, "planted": planted, **found}
