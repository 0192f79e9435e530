"""Inputs of clients to a session: honest clients clip, round and add noise; malicious ones put in anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import SentRound, SumNoise
from fedguard.memmap import let_go
from fedguard.rng import Rng
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.entropy import Entropy, expand_seed
from fedguard.secagg.masks import RingVector
from fedguard.secagg.rotation import rotate


class Inputs:
    """The updates of one round, as its clients put them into one session.

    Args:
        noise: noise that an honest client adds; None for none.
        weights: weights of all clients.
        rng: random stream of rounding and rotation.
        name: name of the session, which has its own rounding and noise; the rotation belongs to the round.
        noise_rng: random stream of the noise, and of the rounding before it, which must be as secret; None for ``rng``.
    """

    def __init__(
        self,
        sent: SentRound,
        encoding: Encoding,
        noise: SumNoise | None,
        weights: Sequence[int],
        rng: Rng,
        name: str,
        noise_rng: Rng | None = None,
    ) -> None:
        self._sent, self._encoding, self._noise, self._weights = sent, encoding, noise, weights
        self._row = {client: row for row, client in enumerate(sent.senders)}
        own = rng if noise is None or noise_rng is None else noise_rng
        self._rng = own.child("rounding", sent.round, name)
        self.dim, self.seed = len(sent.model), _bytes(rng.child("rotation", sent.round))

    def encode_update(self, client: int) -> RingVector:
        """Input of a client: an honest client clips; a malicious one puts in any ring element, unseen, and adds no noise."""
        update, bits = self._update(client).numpy(), self.rounding(client)
        if client in self._sent.malicious:
            return self._encoding.encode_raw(update, weight=self._weights[client], seed=self.seed, entropy=bits)
        if self._noise is None:
            return self._encoding.encode(update, weight=self._weights[client], seed=self.seed, entropy=bits)
        rotated = rotate(update, self.seed) if self._encoding.rotate else update
        return np.append(self._noise.encode(rotated, bits), 1).astype(f"uint{self._encoding.ring}")

    def rounding(self, *names: int | str) -> Entropy:
        """The random bits with which a client's input is rounded, or another vector that is named."""
        return expand_seed(_bytes(self._rng.child(*names)))

    def mean(self, clients: Sequence[int]) -> Tensor:
        """float64 ``[d]``: weighted mean of the clients' updates before encoding."""
        total = torch.zeros(self.dim, dtype=torch.float64)
        for client in clients:
            total += self._weights[client] * self._update(client).double()
        return total / sum(self._weights[client] for client in clients)

    def mean_clip_fraction(self, clients: Sequence[int]) -> float:
        """Share of coordinates that the encoding clips, over the honest ones of these clients.

        With noise whole updates are clipped, and it is the share of clipped updates.
        """
        honest = [self._update(client) for client in clients if client not in self._sent.malicious]
        if self._noise is not None:
            shares = [float(update.double().norm() > self._noise.clip) for update in honest]
        else:
            shares = [self._encoding.clip_fraction(update.numpy(), seed=self.seed) for update in honest]
        return sum(shares) / len(shares) if shares else 0.0

    def malicious_among(self, clients: Sequence[int]) -> int:
        """Number of malicious clients among them, which add no noise."""
        return len(self._sent.malicious & set(clients))

    def _update(self, client: int) -> Tensor:
        let_go(self._sent.updates)  # of the client before
        return self._sent.updates[self._row[client]]


def _bytes(rng: Rng) -> bytes:
    return rng.entropy().to_bytes(16, "little")
