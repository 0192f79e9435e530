"""Running statistics under masks: moments that add up, in a block of their own behind the update in the masked vector.

A running variance may be 1e-4 or 1e4, and one fixed point for all would cut the large ones and lose the small ones. So clients
send moments relative to the last global statistics (mu, v), which everybody knows, by channel with $s^2 = v + 1e-5$:

    r_i = (mu_i - mu) / s,    q_i = (v_i + 1e-5) / s^2,    both within 8

and, for a fate that pools, $(q_i + r_i^2) / 9$ in the place of $q_i$. Their weighted sums are all that the server sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import Cell, SentRound, Setup, StatisticsFate, StatisticsLayout
from fedguard.rng import Rng
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.entropy import expand_seed
from fedguard.secagg.masks import RingVector

#: By how many standard deviations a mean, and by what factor a variance, may differ from the last global ones: public
FACTOR = 8.0
#: What torch's layers add to a variance before they divide by its root: below it a variance makes no difference
EPSILON = 1e-5
#: The largest $q + r^2$, as a multiple of `FACTOR`
_SQUARES = 1 + FACTOR


def to_moments(own: Tensor, before: Tensor, fate: StatisticsFate, layout: StatisticsLayout, honest: bool) -> Tensor:
    """float32 ``[s]``: the moments of a client's statistics (``[s]``), relative to ``before`` (``[s]``).

    An honest client cuts them at `FACTOR`. What is not finite stays so, and its client is dropped.
    """
    where, (mean, scale) = layout.variances, _center(before, layout)
    r, q = (own[~where].double() - mean) / scale.sqrt(), (own[where].double() + EPSILON) / scale
    if honest and bool(own.isfinite().all()):
        r, q = r.clamp(-FACTOR, FACTOR), q.clamp(0, FACTOR)
    moments = torch.empty_like(own)
    moments[~where] = r.to(own.dtype)
    moments[where] = ((q + r.square()) / _SQUARES if fate.adds_up == "squares" else q).to(own.dtype)
    return moments


def from_moments(mean_moments: Tensor, before: Tensor, fate: StatisticsFate, layout: StatisticsLayout) -> Tensor:
    """float32 ``[s]``: the global statistics behind the weighted mean of all clients' moments, float64 ``[s]``.

    The mean of honest moments is within `FACTOR`, and what malicious clients have added beyond is cut.
    """
    where, (mean, scale) = layout.variances, _center(before, layout)
    r, q = mean_moments[~where].clamp(-FACTOR, FACTOR), mean_moments[where].clamp(0, FACTOR)
    found = torch.empty_like(mean_moments)
    found[~where] = mean + r * scale.sqrt()
    found[where] = ((q * _SQUARES - r.square() if fate.adds_up == "squares" else q) * scale - EPSILON).clamp(min=0)
    return found.to(before.dtype)


def _center(before: Tensor, layout: StatisticsLayout) -> tuple[Tensor, Tensor]:
    """float64 ``[s / 2]`` each: the last global means, and variances with what layers add to them."""
    return before[~layout.variances].double(), before[layout.variances].double() + EPSILON


def moments_weights(fate: StatisticsFate, sizes: Sequence[int]) -> Sequence[int]:
    """The weight of each client's moments, given all clients' numbers of examples."""
    return sizes if fate.by_samples else (1,) * len(sizes)


def moments_encoding(cell: Cell, largest_weight: int) -> Encoding:
    """The encoding of moments: bits and ring as for updates, a clip of its own, and no rotation."""
    ours = cell.protocol.encoding
    return Encoding(bits=ours.bits, clip=FACTOR, ring=ours.ring, largest_weight=largest_weight)


class MomentsBlock:
    """The moments of the clients of a training in their masked vectors; of length 0 if nobody sends running statistics.

    Attributes:
        encoding: of the moments and their weight.
        length: number of ring elements.
    """

    def __init__(self, setup: Setup) -> None:
        fate = setup.cell.statistics
        self._size = setup.task.statistics.size if fate.sends else 0
        self._weights = moments_weights(fate, setup.task.sizes)
        self.encoding = moments_encoding(setup.cell, max(self._weights))
        self.length = self.encoding.length(self._size) if self._size else 0

    def encode(self, sent: SentRound, client: int, rng: Rng) -> RingVector:
        """uint ``[length]``: the block of a client; a malicious one puts in any ring element, unseen."""
        if not self._size:
            return np.empty(0, f"uint{self.encoding.ring}")
        moments, malicious = sent.statistics[client].numpy(), client in sent.malicious
        entropy = expand_seed(rng.child(sent.round, client).entropy().to_bytes(16, "little"))
        encode = self.encoding.encode_raw if malicious else self.encoding.encode
        return encode(moments, weight=self._weights[client], seed=b"", entropy=entropy)

    def decode(self, block: RingVector) -> tuple[Tensor, int] | None:
        """float64 ``[s]``: the weighted sum of the moments in a session, and the sum of the weights; None without any."""
        if not self._size:
            return None
        total, weight = self.encoding.decode(block, dim=self._size, seed=b"")
        return (torch.from_numpy(total), weight) if weight > 0 else None
