"""Mechanisms of one's own for `fedguard audit --mechanism`: one that keeps its claim, and one that does not.

    fedguard audit --mechanism examples/own_mechanism.py:calibrated \\
        --claim "epsilon=4, delta=1e-5, per=release, relation=replace, law=gaussian"
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Update = list[NDArray[np.float32]]

#: Standard deviation at which two updates that are 2 apart have epsilon = 4 at delta = 1e-5.
SIGMA = 2.163
_noise = np.random.default_rng()


def calibrated(update: Update) -> Update:
    """Clips the whole update to length 1 and adds Gaussian noise."""
    length = float(np.sqrt(sum((layer.astype(np.float64) ** 2).sum() for layer in update)))
    factor = min(1.0, 1.0 / max(length, 1e-12))
    return [factor * layer + _noise.normal(0, SIGMA, layer.shape) for layer in update]


def each_layer(update: Update) -> Update:
    """The same noise, but each layer is clipped by itself: four of them are together twice as long."""
    return [calibrated([layer])[0] for layer in update]
