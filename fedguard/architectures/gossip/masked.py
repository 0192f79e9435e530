"""Masks within neighborhoods: a node learns the weighted sum of its neighbors' values, and no single value."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedguard.architectures.masking.pairwise import KEY, PairwiseKeys
from fedguard.contracts import MaskedRound, Setup
from fedguard.kernels import all_finite
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.entropy import expand_seed

#: Bytes of an element of the ring.
_ELEMENT = 4


class MaskedSums:
    """The masked sums of one training, each over the neighbors of one node.

    To node i its neighbor j sends $z_j = round(S W_ij (v_j - a)) + sum_{k > j} PRG(k_{jk}) - sum_{k < j} PRG(k_{jk})$ modulo
    $2^32$, k over its other neighbors, with a public a and keys that are new for each node and exchange. So all that it can
    compute is $sum_j W_ij v_j$, up to rounding. Keys come from the operating system, rounding from the trial's seed.
    """

    def __init__(self, setup: Setup, encoding: Encoding) -> None:
        self._setup, self._encoding = setup, encoding
        self._pairs = PairwiseKeys()
        self._met: set[tuple[int, int]] = set()
        self._begin()

    def _begin(self) -> None:
        self._sums, self._least, self._bytes, self._clipped = 0, 0, 0, list[float]()
        self._off, self._length = 0.0, 0.0

    def exchange_keys(self, senders: Sequence[int]) -> int:
        """Bytes of the public keys that these nodes exchange, unless they have done so before."""
        new = {(one, other) for one in senders for other in senders if one != other} - self._met
        self._met |= new
        self._pairs.introduce(senders)
        self._bytes += KEY * len(new)
        return KEY * len(new)

    def total(
        self,
        node: int,
        exchange: int,
        vectors: Mapping[int, Tensor],
        weights: Mapping[int, float],
        malicious: Collection[int],
    ) -> Tensor | None:
        """float32 ``[d]``: $sum_j W_ij v_j$ at node i; None if the vector of a sender is not finite.

        Args:
            vectors: value of each sender, relative to a.
            malicious: senders that are not clipped: they may put in any ring element.
        """
        senders = sorted(vectors)
        # The sender weighs, as the receiver never has a single value; so the weights must be known to the senders
        weighted = {one: vectors[one].double() * weights[one] for one in senders}
        if not all(map(all_finite, weighted.values())):
            return None
        masked = [self.message(node, exchange, one, weighted[one], senders, one in malicious) for one in senders]
        summed = np.zeros_like(masked[0])
        for one in masked:
            summed += one
        # The encoding expects a last element for the weights, which are public here
        found = torch.from_numpy(self._encoding.decode(np.append(summed, np.uint32(0)), dim=len(summed), seed=b"")[0])
        self._count(weighted, found, malicious)
        return found.to(vectors[senders[0]].dtype)

    def message(
        self, node: int, exchange: int, sender: int, vector: Tensor, senders: Sequence[int], lies: bool
    ) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """uint32 ``[d]``: masked value that one sender sends to the node."""
        rng = self._setup.rng.child("masking", exchange, node, sender)
        encode = self._encoding.encode_raw if lies else self._encoding.encode
        bits = expand_seed(rng.entropy().to_bytes(16, "little"))
        found = encode(vector.numpy(), seed=b"", entropy=bits)[:-1].astype(np.uint32)
        # One name for each sum: with one key for two sums their difference would be in clear
        sid = hashlib.sha256(f"neighbourhood {node}, exchange {exchange}".encode()).digest()
        self._pairs.add(found, sender, senders, sid)
        return found

    def report(self) -> MaskedRound:
        """Report of the sums of a round."""
        n = len(self._setup.task.sizes)
        found = MaskedRound(
            clients=n,
            sessions=self._sums,
            aborted=(),
            survivors=n,
            anonymity=self._least - self._setup.cell.protocol.colluders(self._least),
            contributors=None,
            error=float((self._off / self._length) ** 0.5) if self._length else None,
            clipped=sum(self._clipped) / len(self._clipped) if self._clipped else 0.0,
            bytes_up=self._bytes,
            bytes_down=0,
        )
        self._begin()
        return found

    def _count(self, weighted: Mapping[int, Tensor], found: Tensor, malicious: Collection[int]) -> None:
        true = torch.stack(list(weighted.values())).sum(0)
        self._off += float((found - true).square().sum())
        self._length += float(true.square().sum())
        self._sums += 1
        self._least = min(self._least or len(weighted), len(weighted))
        self._bytes += _ELEMENT * len(found) * len(weighted)
        clip = self._encoding
        self._clipped += [
            clip.clip_fraction(one.numpy(), seed=b"") for sender, one in weighted.items() if sender not in malicious
        ]
