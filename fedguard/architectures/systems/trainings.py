"""Trainings that have begun, each from the model of its moment: computed late, and all together."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor

from fedguard.architectures.clients import Clients
from fedguard.contracts.stopwatch import Stopwatch

#: A client, and which of its trainings it is.
Key = tuple[int, int]


class LocalTrainings:
    """What the honest clients that compute at a moment began with, and what came of it.

    A training is computed when its update is asked for, and with it all others that have begun: so clients that start one by
    one cost about what they cost when they start together.
    """

    def __init__(self, clients: Clients, stopwatch: Stopwatch) -> None:
        self._clients, self._stopwatch = clients, stopwatch
        self._starts: dict[Key, Tensor] = {}
        self._updates: dict[Key, Tensor] = {}
        self._lost: set[Key] = set()
        self._shares: dict[Key, float] = {}

    def begin(self, begun: Iterable[Key], model: Tensor, shares: Mapping[Key, float]) -> None:
        """These begin with ``model`` (float32 ``[d]``), which nobody changes in place.

        Args:
            shares: of its work that each does, of those that do not do all.
        """
        self._starts.update(dict.fromkeys(begun, model))
        self._shares.update(shares)

    def start(self, key: Key) -> Tensor:
        """float32 ``[d]``: the model that a training which is not yet forgotten began with."""
        return self._starts[key]

    def drop(self, keys: Iterable[Key]) -> None:
        """These are of no use to anybody."""
        for key in keys:
            self._starts.pop(key, None)
            self._updates.pop(key, None)
            self._shares.pop(key, None)

    def lose(self, keys: Iterable[Key]) -> None:
        """These reach nobody, but each client remembers that it has done them: so they are computed with the next ones."""
        self._lost.update(keys)
        self._forget_lost()

    def _forget_lost(self) -> None:
        done = self._lost & self._updates.keys()
        self.drop(done)
        self._lost -= done

    def collect_updates(self, keys: Sequence[Key], apart: Container[int], rows: Tensor) -> None:
        """Fill ``rows`` (float32 ``[n, d]``) with what these came to. They are forgotten.

        Args:
            apart: clients whose trainings are not computed unless they are asked for.
        """
        if any(key not in self._updates for key in keys):
            with self._stopwatch.stage("training"):
                self._compute(set(keys), apart)
        for row, key in zip(rows, keys, strict=True):
            row.copy_(self._updates[key])
        self.drop(keys)

    def _compute(self, wanted: Collection[Key], apart: Container[int]) -> None:
        """Train all that have begun: a client's earlier trainings go before its later ones."""
        now = sorted(
            (key for key in self._starts if key not in self._updates and (key in wanted or key[0] not in apart)),
            key=lambda key: key[::-1],
        )
        if self._shares:  # who does a share of its work does it in one turn, and of the next another
            for _, some in groupby(now, key=lambda key: key[1]):
                self._train(list(some))
        else:
            self._train(now)
        self._forget_lost()

    def _train(self, now: Sequence[Key]) -> None:
        starts = [self._starts[key] for key in now]
        common = all(start is starts[0] for start in starts)
        rows = torch.empty(len(now), len(starts[0]))
        clients, turns = tuple(client for client, _ in now), [turn for _, turn in now]
        shares = {key[0]: self._shares[key] for key in now if key in self._shares}
        self._clients.train_honest(starts[0] if common else torch.stack(starts), turns, clients, rows, shares)
        self._updates.update(zip(now, rows, strict=True))
