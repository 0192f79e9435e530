"""Random numbers of devices: the k-th draw of a device depends only on the seed, the device and k; it takes about a
microsecond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedguard.rng import Rng

#: Devices in a block, and draws for each: setting up a stream costs as much as drawing a thousand numbers.
_DEVICES, _DRAWS = 64, 16
#: Blocks kept for each group of devices; an evicted block is drawn again.
_KEPT = 8


class Draws:
    """Draws from one distribution.

    Args:
        rng: random stream used for these draws only.
        law: function of a generator and a shape, such as ``lambda draw, shape: draw.normal(size=shape)``.
    """

    def __init__(self, rng: Rng, law: Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]) -> None:
        self._rng, self._law = rng, law
        self._blocks: dict[int, dict[int, NDArray[np.float64]]] = {}

    def __call__(self, device: int, k: int) -> float:
        """The k-th draw of a device, from 0."""
        group, row = divmod(device, _DEVICES)
        number, column = divmod(k, _DRAWS)
        blocks = self._blocks.setdefault(group, {})
        block = blocks.get(number)
        if block is None:
            if len(blocks) == _KEPT:
                # The oldest block goes: the k of a device mostly grows, and a block drawn again is the same
                del blocks[next(iter(blocks))]
            # Seeded by its place, not read from a running stream: the order in which devices ask changes no draw
            draw = self._rng.child(group, number).numpy()
            block = blocks[number] = self._law(draw, (_DEVICES, _DRAWS))
        return block.item(row * _DRAWS + column)


def uniform(draw: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return draw.random(shape)


def normal(draw: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return draw.normal(size=shape)


def exponential(draw: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return draw.standard_exponential(shape)
