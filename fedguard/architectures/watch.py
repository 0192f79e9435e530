"""Recording of the rounds that the observer watches."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.contracts import Fate, ReceivedRound, RoundObservation, SentRound, Setup
from fedguard.errors import ContractError

#: Why a round in which the server tampered changes nothing.
ANOTHER_MODEL = "the malicious server sent another model, and threw away what came back"


def choose_model(setup: Setup, model: Tensor) -> Tensor:
    """float32 ``[d]``: the model that clients are sent in a watched round; a malicious server may send another one.

    Raises:
        ContractError: that model has another shape.
    """
    if setup.observer is None or setup.observer.sends is None:
        return model
    sent = setup.observer.sends(model)
    if sent.shape != model.shape:
        raise ContractError(f"tamper: expected a model of shape {list(model.shape)}; got {list(sent.shape)}.")
    return sent


def copy_messages(sent: SentRound) -> SentRound:
    """The messages that were sent and not lost, in memory of their own, since the round's is reused."""
    silent = sent.of_fate(Fate.SILENT)
    rows = [row for row, client in enumerate(sent.senders) if client not in silent]
    trainings = tuple(sent.trainings[row] for row in rows) if sent.trainings else ()
    return replace(
        sent, updates=sent.updates[rows], senders=tuple(sent.senders[row] for row in rows), trainings=trainings
    )


def observe_round(
    seen: SentRound, received: ReceivedRound, result: Aggregate | str, after: Tensor, gain: float
) -> RoundObservation:
    """The observation of a finished round, with the model after it (float32 ``[d]``) and the factor of its aggregate."""
    return RoundObservation(
        seen,
        after,
        received.behind,
        received.rows.clone(),
        result.vector.clone() if isinstance(result, Aggregate) else None,
        received.inputs,
        gain=gain,
    )
