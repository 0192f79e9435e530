"""Data sets, one file each, and the one way they are split."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedguard.contracts import Dataset, Examples


def split_dataset(
    x: NDArray[np.float64], y: NDArray[np.int64], *, test: int, value_range: tuple[float, float] | None = None
) -> Dataset:
    """A `Dataset` with ``test`` test examples, drawn once with equal shares of each class.

    Without a ``value_range`` the columns are standardised with the mean and deviation of the train part, and the range
    is what the train part then spans.
    """
    from sklearn.model_selection import train_test_split

    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=test, random_state=0, stratify=y)
    if value_range is None:
        mean, deviation = x_train.mean(0), x_train.std(0)
        x_train, x_test = (x_train - mean) / deviation, (x_test - mean) / deviation
    train, test_part = _examples(x_train, y_train), _examples(x_test, y_test)
    span = value_range or (float(train.x.min()), float(train.x.max()))
    return Dataset(train, test_part, len(np.unique(y)), span)


def _examples(x: NDArray[np.float64], y: NDArray[np.int64]) -> Examples:
    return Examples(torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64))
