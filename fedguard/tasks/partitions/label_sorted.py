"""Label-sorted shards (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition, PositiveInt
from fedguard.errors import require
from fedguard.rng import Rng
from fedguard.tasks.partitions.class_labels import class_labels


@dataclass(frozen=True, kw_only=True)
class LabelShards(Partition):
    """Sorts the examples by label, cuts them into equal shards and deals each client some: the hardest label skew.

    Args:
        shards: shards per client. With 1 a client knows one or two classes; the source uses 2.
        in_order: whether they are dealt in the order of the clients' numbers, so that neighbors on a graph with
            ``places: in_order`` hold adjacent classes; else they are drawn, whatever the places.
    """

    name = "label_sorted"
    source = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017"

    shards: PositiveInt = 1
    in_order: bool = False

    later: ClassVar = {"in_order": False}

    def split(self, examples: Examples, clients: int, rng: Rng) -> list[NDArray[np.int64]]:
        labels = class_labels(self, examples)
        count = clients * self.shards
        require(
            len(labels) >= count,
            f"label_sorted: expected at least one example per shard; got {len(labels)} for {count} shards.",
        )
        draw = rng.numpy()
        shuffled = draw.permutation(len(labels))
        shards = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], count)
        dealt = (np.arange(count) if self.in_order else draw.permutation(count)).reshape(clients, self.shards)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in dealt]
