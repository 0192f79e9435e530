"""Keeps the rounds of a trial as inner products, for `fedguard.bench.records.replay`."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedguard.adapters.model import form_of
from fedguard.bench.records.replay import LARGEST, KeptRound, size_of
from fedguard.config import PlannedCell
from fedguard.config.composed import ComposedCell
from fedguard.contracts import ReceivedRound, Sight
from fedguard.kernels import combine_rows, gram_matrix
from fedguard.metrics.plane import Floats, find_plane


class RoundKeeper:
    """Keeps rounds as an evaluator sees them: single updates even where masks hide them from the server.

    Of a round with several aggregates, which servers in simulated time may have, the last is kept. Once the file would be too
    large, no more rounds are kept.

    Args:
        every: distance of the kept rounds, from the first on.
    """

    def __init__(self, every: int) -> None:
        self._every, self._kept, self._bytes = every, dict[int, KeptRound](), 0
        self._axes: Tensor | None = None

    @property
    def rounds(self) -> list[KeptRound]:
        """The kept rounds, in their order."""
        return [self._kept[round] for round in sorted(self._kept)]

    def __call__(self, round: int, received: ReceivedRound, aggregate: Tensor | None, weights: Tensor | None) -> None:
        """Keep a round; see `fedguard.contracts.Setup.keep` for the arguments."""
        arrived, sent = set(received.clients), received.sent
        here = [row for row, client in enumerate(sent.senders) if client in arrived]
        size = size_of(len(here), 1)
        if (round - 1) % self._every or not here or self._bytes + size > LARGEST // 2:
            return
        updates = sent.updates if len(here) == len(sent.senders) else sent.updates[here]
        clients = tuple(sent.senders[row] for row in here)
        malicious = np.array([client in sent.malicious for client in clients])
        if self._axes is None:
            self._axes = _axes_of(updates, malicious)
        self._bytes += size
        self._kept[round] = KeptRound(
            round,
            clients,
            malicious,
            None if weights is None else _weigh_updates(received, clients, weights),
            gram_matrix(updates, [*([] if aggregate is None else [aggregate]), *self._axes]).numpy(),
            aggregate is not None,
        )


def _axes_of(updates: Tensor, malicious: NDArray[np.bool_]) -> Tensor:
    """float32 ``[2, d]``: vectors along the axes of a round (`fedguard.metrics.plane`), each one unit long."""
    inner = gram_matrix(updates).numpy()
    products = inner - inner[-1][:, None] - inner[-1][None, :] + inner[-1, -1]
    axes = find_plane(products[:-1, :-1], ~malicious).axes
    return torch.stack([combine_rows(updates, torch.from_numpy(one)) for one in axes])


def _weigh_updates(received: ReceivedRound, clients: tuple[int, ...], weights: Tensor) -> Floats:
    """float64 ``[n]``: the weight of each update; a row that is the mean of several shares its weight among them."""
    rows: dict[int, deque[float]] = {}
    for behind, weight in zip(received.behind, weights.tolist(), strict=True):
        for client in behind:
            rows.setdefault(client, deque()).append(weight / len(behind))
    several = {client: clients.count(client) for client in rows}
    # A client may be behind several sums, and a late one may have sent several updates, which have a row each
    return np.array([
        0.0 if not rows.get(client) else rows[client].popleft() if several[client] > 1 else sum(rows[client])
        for client in clients
    ])  # fmt: skip


def why_no_replay(cell: PlannedCell) -> str | None:
    """Why the rounds of a cell cannot be kept; None if they can."""
    if not isinstance(cell, ComposedCell):
        return "an app keeps its updates to itself"
    if Sight.GRAPH in cell.architecture.exposes.server:
        return f"{cell.architecture.name} has no server, and each node an aggregate of its own"
    form = form_of(cell.model)
    if form is not None and form.of_products:
        return f"of training.adapters: {form.name} the rule sees products of factors, not what is kept"
    return None
