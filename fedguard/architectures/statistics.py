"""The running statistics of a training from round to round: where clients start, and what they send."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import aggregate_statistics
from fedguard.architectures.masking.moments import from_moments, to_moments
from fedguard.contracts import (
    Cell,
    LocalStatistics,
    ReceivedRound,
    RoundReport,
    RuleContext,
    Setup,
    Sight,
    Task,
)
from fedguard.contracts.channels import STATISTICS


class RunningStatistics:
    """The running statistics of a server and its clients in one training; nothing for a network that has none.

    Attributes:
        floored: variances below 0 that clients have sent so far, and that the server has taken for 0.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup, self._fate, self._layout = setup, setup.cell.statistics, setup.task.statistics
        self._global, self.floored = self._layout.initial.clone(), 0
        #: The statistics of each client that has trained, if clients keep their own
        self._own: dict[int, Tensor] = {}
        #: The statistics of the clients that have trained in this round
        self._trained: dict[int, Tensor] = {}
        #: The last round that arrived, for statistics that are computed anew under the model after it
        self._received: ReceivedRound | None = None
        self._round, self._masked = 0, setup.cell.masking.masked

    @property
    def current(self) -> Tensor:
        """float32 ``[s]``: the global statistics, which clients receive in the next round."""
        return self._global

    def begin(self) -> None:
        """Begin a round."""
        self._trained = {}

    def start(self, clients: Sequence[int]) -> LocalStatistics | None:
        """Where these clients start and where they write; None for a network without running statistics."""
        if not self._layout.size:
            return None
        start = self._of(clients) if self._fate.local else self._global
        return LocalStatistics(start, self._global.new_empty(len(clients), self._layout.size))

    def note(self, clients: Sequence[int], statistics: LocalStatistics | None) -> None:
        """Record the statistics that these clients have after training."""
        if statistics is not None:
            trained = self._own if self._fate.local else self._trained
            trained.update(zip(clients, statistics.out, strict=True))

    def send(self, clients: Sequence[int], malicious: Collection[int]) -> Mapping[int, Tensor]:
        """What these clients send beside their updates; a client that has not trained sends what it has received.

        Under masks they send moments relative to the last global statistics.
        """
        if not self._layout.size or self._fate.fresh or self._fate.local:
            return {}
        sent = self._falsify({client: self._trained.get(client, self._global) for client in clients}, malicious)
        if not self._masked:
            return sent
        relative = partial(to_moments, before=self._global, fate=self._fate, layout=self._layout)
        return {client: relative(own, honest=client not in malicious) for client, own in sent.items()}

    def settle(self, received: ReceivedRound, round: int) -> None:
        """The server combines what has arrived in a round."""
        if not self._layout.size or self._fate.local:
            return
        self._received, self._round = received, round
        if self._masked:
            self._add_up(received)
        elif not self._fate.fresh:
            self._combine(received, received.sent.statistics)

    def for_evaluation(self, model: Tensor) -> Tensor | None:
        """The statistics with which ``model`` (``[d]``) is evaluated; None for a network that has none.

        Returns:
            float32 ``[s]``, or ``[clients, s]`` where each client has its own.
        """
        if not self._layout.size:
            return None
        if self._fate.local:
            return self._of(range(len(self._setup.task.sizes)))
        if self._fate.fresh and self._received is not None:
            clients = _senders(self._received)
            rows = self._global.new_empty(len(clients), self._layout.size)
            self._setup.task.measure_statistics(model, clients, rows)
            honest = dict(zip(clients, rows, strict=True))
            self._combine(self._received, self._falsify(honest, self._received.sent.malicious))
        return self._global

    def _of(self, clients: Sequence[int]) -> Tensor:
        """float32 ``[n, s]``: what these clients have; the initial statistics, if they have not trained."""
        return torch.stack([self._own.get(client, self._global) for client in clients])

    def _falsify(self, honest: Mapping[int, Tensor], malicious: Collection[int]) -> Mapping[int, Tensor]:
        """What clients send, if they would honestly send this: malicious ones as the attack says."""
        attack, liars = self._setup.cell.attack, [client for client in honest if client in malicious]
        if attack is None or not liars:
            return honest
        said = attack.report(STATISTICS, torch.stack([honest[client] for client in liars]), self._layout)
        return {**honest, **dict(zip(liars, said, strict=True))}

    def _add_up(self, received: ReceivedRound) -> None:
        """Make global statistics of the sum of all moments, which is all that the server has under masks."""
        if received.moments is not None:
            total, weight = received.moments
            self._global = from_moments(total / weight, self._global, self._fate, self._layout)

    def _combine(self, received: ReceivedRound, sent: Mapping[int, Tensor]) -> None:
        """Make global statistics of what the clients of a round have sent, as far as it is finite."""
        kept = [k for k, client in enumerate(_senders(received)) if bool(sent[client].isfinite().all())]
        if not kept or received.samples is None:
            return
        rows = torch.stack([sent[_senders(received)[k]] for k in kept])
        # What is not finite came from one of the f
        f, rng = max(0, received.assumed_f - len(received.behind) + len(kept)), self._setup.rng.child("statistics rule")
        context = RuleContext(
            "server",
            Sight.EACH_UPDATE,
            f=f,
            round=self._round,
            rng=rng.child(self._round),
            layers=(self._layout.size,),
            shape=self._setup.task.shape,
        )
        found, floored = aggregate_statistics(self._fate, rows, received.samples[kept], self._layout, context)
        self.floored += floored
        self._global = self._global if found is None else found


def _senders(received: ReceivedRound) -> list[int]:
    return [client for row in received.behind for client in row]


def describe_statistics(cell: Cell, task: Task, last: RoundReport) -> dict[str, Any]:
    """What a record stores of the running statistics of a network that normalizes over batches."""
    fate, found = cell.statistics, last.evaluation
    personal = found is not None and found.worst is not None
    return {
        "fate": str(fate),
        "normalization": fate.normalization,
        "layers": task.statistics.layers,
        "numbers": task.statistics.size,
        "rule": str(fate.rule or "mean") if fate.sends else None,
        "floored": last.floored,
        **({"elsewhere": found.elsewhere, "worst": found.worst} if found is not None and personal else {}),
    }
