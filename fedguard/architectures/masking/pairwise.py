"""Pairwise masks, which cancel only in the sum of all parties that agreed on keys; they cannot be recovered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedguard.contracts import SentRound
from fedguard.secagg.entropy import system
from fedguard.secagg.keys import KeyPair, pairwise_mask_key
from fedguard.secagg.masks import RingVector, add_masks

#: Bytes of a public key.
KEY = 32


class PairwiseKeys:
    """The keys of the parties of one training, from the operating system: each pair agrees on one key.

    Party i adds $sum_{j > i} PRG(k_{ij}) - sum_{j < i} PRG(k_{ij})$ to its vector, with keys that are new in each round.
    """

    def __init__(self) -> None:
        self._parties: dict[int, KeyPair] = {}
        self._agreed: dict[tuple[int, int], bytearray] = {}

    def introduce(self, parties: Sequence[int]) -> tuple[int, int]:
        """Number of new parties, and of public keys delivered: each party has the keys of all others."""
        known, new = len(self._parties), [party for party in parties if party not in self._parties]
        self._parties.update((party, KeyPair(system(KEY))) for party in new)
        now = len(self._parties)
        return len(new), now * (now - 1) - known * (known - 1)

    def mask(self, vector: RingVector, party: int, parties: Sequence[int], sent: SentRound) -> None:
        """Add the masks of a party to its vector, in place; ``parties`` are all parties of the sum."""
        self.add(vector, party, parties, hashlib.sha256(sent.model_hash + sent.round.to_bytes(8, "little")).digest())

    def add(self, vector: RingVector, party: int, parties: Sequence[int], sid: bytes) -> None:
        """Add masks in the session with the name ``sid``, 32 bytes; no two sums may have the same name."""
        add_masks(
            vector, [(self._key(sid, party, other), 1 if party < other else -1) for other in parties if other != party]
        )

    def _key(self, sid: bytes, one: int, other: int) -> bytes:
        pair = (min(one, other), max(one, other))
        if pair not in self._agreed:
            self._agreed[pair] = self._parties[pair[0]].agree(self._parties[pair[1]].public)
        # In ascending order, so that both parties derive the same key
        keys = [(party, self._parties[party].public) for party in pair]
        return pairwise_mask_key(sid, self._agreed[pair], keys[0], keys[1], 16)
