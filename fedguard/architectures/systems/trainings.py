"""Local trainings that have begun, each from the model of its start: computed lazily and in batches."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.contracts import LocalTraining
from fedguard.contracts.stopwatch import Stopwatch

#: A client, and which of its trainings it is.
Key = tuple[int, int]


class LocalTrainings:
    """Trainings under way of honest clients: the models they began with, and their updates once computed.

    A training is computed when its update is needed, together with all others that have begun. So clients that start one by one
    cost about as much as clients that start together.
    """

    def __init__(self, clients: Clients, stopwatch: Stopwatch) -> None:
        self._clients, self._stopwatch = clients, stopwatch
        self._starts: dict[Key, Tensor] = {}
        self._updates: dict[Key, Tensor] = {}
        self._lost: set[Key] = set()
        self._shares: dict[Key, float] = {}

    def begin(self, begun: Iterable[LocalTraining], model: Tensor) -> None:
        """Begin these trainings from ``model`` (float32 ``[d]``), which is never changed in place."""
        # References, not copies: a model lives as long as a training that began with it
        self._starts.update((one.key, model) for one in begun)
        self._shares.update((one.key, one.share) for one in begun if one.share < 1)

    def start(self, key: Key) -> Tensor:
        """float32 ``[d]``: the model from which a training began that is not yet forgotten."""
        return self._starts[key]

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget trainings that nobody needs."""
        for key in keys:
            self._starts.pop(key, None)
            self._updates.pop(key, None)
            self._shares.pop(key, None)

    def lose(self, keys: Iterable[Key]) -> None:
        """Trainings that are lost after they were done: still computed with the next ones, for the state of their clients."""
        self._lost.update(keys)
        self._forget_lost()

    def _forget_lost(self) -> None:
        done = self._lost & self._updates.keys()
        self.drop(done)
        self._lost -= done

    def collect_updates(self, keys: Sequence[Key], apart: Container[int], rows: Tensor) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with the updates of these trainings, and forget them.

        Args:
            apart: clients with trainings that are computed only if asked for.
        """
        if any(key not in self._updates for key in keys):
            with self._stopwatch.stage("training"):
                self._compute(set(keys), apart)
        for row, key in zip(rows, keys, strict=True):
            row.copy_(self._updates[key])
        self.drop(keys)

    def _compute(self, wanted: Collection[Key], apart: Container[int]) -> None:
        """Compute all trainings that have begun, a client's earlier ones before its later ones."""
        now = sorted(
            (key for key in self._starts if key not in self._updates and (key in wanted or key[0] not in apart)),
            # By turn first: worker momentum carries from one training of a client to the next
            key=lambda key: key[::-1],
        )
        if self._shares:  # shares are by client, and a client may do another share in its next turn
            for _, some in groupby(now, key=lambda key: key[1]):
                self._train(list(some))
        else:
            self._train(now)
        self._forget_lost()

    def _train(self, now: Sequence[Key]) -> None:
        starts = [self._starts[key] for key in now]
        # By identity: comparing models would cost more than it saves, and one pull hands out one object
        common = all(start is starts[0] for start in starts)
        rows = torch.empty(len(now), len(starts[0]))
        clients, turns = tuple(client for client, _ in now), [turn for _, turn in now]
        shares = {key[0]: self._shares[key] for key in now if key in self._shares}
        self._clients.train_honest(starts[0] if common else torch.stack(starts), turns, clients, rows, shares)
        self._updates.update(zip(now, rows, strict=True))
