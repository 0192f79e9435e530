"""Running statistics: what normalization over batches keeps beside the parameters, and what becomes of it in a federation.

A network with batch normalization has parameters, float32 ``[d]``, and running statistics, float32 ``[s]``: for each layer the
mean of each channel, then its variance. Training updates them and does not read them; evaluation reads them. A round has
updates ``[n, d]`` and, beside them, statistics ``[n, s]``. No rule for updates ever sees these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedguard.contracts.algorithm import Algorithm

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

    @cached_property
    def layer_of(self) -> Tensor:
        """int64 ``[s]``: the layer of each coordinate, from 0."""
        return torch.arange(len(self.channels)).repeat_interleave(2 * torch.tensor(self.channels, dtype=torch.int64))


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


class StatisticsFate(Algorithm):
    """What becomes of the running statistics of clients.

    As long as layers normalize by the batch in training, the parameters of a training do not depend on the fate: only their
    evaluation does.
    """

    kind: ClassVar[str] = "statistics"
    #: By what the layers normalize
    normalization: ClassVar[Normalization] = "running"
    #: Whether clients compute statistics under the new model, by one more pass over their examples, instead of sending those
    #: that they have after training
    fresh: ClassVar[bool] = False
    #: What it does, a sentence for `fedguard check`
    words: ClassVar[str]

    @property
    def sends(self) -> bool:
        """Whether clients send statistics beside their updates."""
        return self.normalization == "running"

    def combine(self, rows: Tensor, samples: Tensor, layout: StatisticsLayout) -> Tensor:
        """float32 ``[s]``: the global statistics; not called for a fate that sends nothing.

        Args:
            rows: float32 ``[n, s]``: the statistics of the clients whose update arrived, all finite, no variance below 0.
            samples: float64 ``[n]``: the number of examples that each of them claims.
        """
        raise NotImplementedError
