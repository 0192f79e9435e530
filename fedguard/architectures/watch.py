"""Recording of the rounds that the observer watches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate
from fedguard.contracts import Fate, LocalTraining, ReceivedRound, RoundObservation, SentRound, Setup
from fedguard.errors import ContractError

#: Why a round in which the server tampered changes nothing.
ANOTHER_MODEL = "the malicious server sent another model, and threw away what came back"


class RoundRecorder:
    """Recorder of one watched round.

    Args:
        sent: float32 ``[d]``, the model that the server sends in the round.
    """

    def __init__(self, sent: Tensor) -> None:
        self.sent = sent
        self._clients: tuple[int, ...] = ()
        self._updates = torch.empty(0)
        self._malicious: frozenset[int] = frozenset()
        self._trainings: tuple[LocalTraining, ...] = ()
        self._statistics: Mapping[int, Tensor] = {}

    def see(self, sent: SentRound, before: Tensor) -> None:
        """Keep the updates that were sent and not lost. Their memory is reused after the round.

        Args:
            before: float32 ``[s]``: the running statistics that all clients received.
        """
        rows = [row for row, client in enumerate(sent.wire.clients) if client not in sent.of_fate(Fate.SILENT)]
        self._clients = tuple(sent.wire.clients[row] for row in rows)
        self._updates = sent.wire.updates[rows]
        self._malicious = sent.wire.malicious
        self._trainings = tuple(sent.wire.trainings[row] for row in rows) if sent.wire.trainings else ()
        own = sent.wire.statistics
        self._statistics = {client: torch.stack([before, own[client]]) for client in self._clients if client in own}

    def observe_round(
        self, received: ReceivedRound, result: Aggregate | str, after: Tensor, gain: float
    ) -> RoundObservation:
        """The observation of the finished round, with the model after it (float32 ``[d]``) and the factor of its aggregate."""
        aggregate = result.vector.clone() if isinstance(result, Aggregate) else None
        return RoundObservation(
            self.sent,
            after,
            self._clients,
            self._updates,
            received.behind,
            received.rows.clone(),
            aggregate,
            received.inputs,
            malicious=self._malicious,
            trainings=self._trainings,
            gain=gain,
            statistics=self._statistics,
        )


def watching(setup: Setup, model: Tensor, round: int) -> RoundRecorder | None:
    """The recorder of this round; None if the observer does not watch it.

    A malicious server may send another model in it.

    Raises:
        ContractError: that model has another shape.
    """
    observer = setup.observer
    if observer is None or not observer.watches(round):
        return None
    if observer.sends is None:
        return RoundRecorder(model)
    sent = observer.sends(model)
    if sent.shape != model.shape:
        raise ContractError(f"tamper: expected a model of shape {list(model.shape)}; got {list(sent.shape)}.")
    return RoundRecorder(sent)
