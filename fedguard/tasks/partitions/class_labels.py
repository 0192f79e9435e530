"""The labels by which partitions deal out classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Examples, Partition
from fedguard.errors import require


def class_labels(partition: Partition, examples: Examples) -> NDArray[np.int64]:
    """int64 ``[N]``: the class of each example.

    Raises:
        ConfigError: each token has a label, and no example a class.
    """
    require(
        examples.y.dim() == 1,
        f"{partition.name} deals out classes, and these examples have a label of each token. Take iid, natural or "
        "quantity_skew.",
    )
    labels: NDArray[Any] = examples.y.numpy()
    return labels
