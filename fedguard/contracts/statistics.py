"""Running statistics: what normalization over batches keeps beside the parameters, and what becomes of it in a federation.

A network with batch normalization has parameters, float32 ``[d]``, and running statistics, float32 ``[s]``: for each layer the
mean of each channel, then its variance. Training updates them and does not read them; evaluation reads them. A round has
updates ``[n, d]`` and, beside them, statistics ``[n, s]``. No rule for updates ever sees these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

#: By what the normalizing layers of a network normalize: ``running`` by the batch in training and by running statistics in
#: evaluation, ``batch`` by the batch in both, ``constant`` by the network's initial statistics in both
Normalization = Literal["running", "batch", "constant"]


@dataclass(frozen=True)
class StatisticsLayout:
    """What the coordinates of the running statistics of a network are.

    Attributes:
        channels: number of channels of each layer, in order. A layer has the means of its channels, then their variances.
        initial: float32 ``[s]``: the statistics before any training, s = 2 times the channels of all layers.
        layers: number of layers of the network that normalize over batches; it may have them without running statistics.
    """

    channels: tuple[int, ...] = ()
    initial: Tensor = field(default_factory=lambda: torch.empty(0))
    layers: int = 0

    @property
    def size(self) -> int:
        """s, the number of running statistics."""
        return len(self.initial)

    @cached_property
    def variances(self) -> Tensor:
        """bool ``[s]``: which coordinates are variances; the others are means."""
        parts = [torch.tensor([False, True]).repeat_interleave(channels) for channels in self.channels]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.bool)


@dataclass(frozen=True)
class LocalStatistics:
    """Where the running statistics of some clients start in a local training, and where each client writes its own.

    Attributes:
        start: float32 ``[s]``, from which all start, or ``[n, s]``, a row for each.
        out: float32 ``[n, s]``, overwritten with the statistics after the training.
    """

    start: Tensor
    out: Tensor

    def select(self, rows: slice) -> LocalStatistics:
        """The same for some of the clients, in the same memory."""
        return LocalStatistics(self.start if self.start.dim() == 1 else self.start[rows], self.out[rows])
