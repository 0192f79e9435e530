"""Points in the plane as characters: for `explain`, in any terminal, with or without color."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.text import Text

WIDTH, HEIGHT = 60, 16

Points = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ChartLayer:
    """Points ``[k, 2]`` that share one character, with what it means and a rich style."""

    points: Points
    symbol: str
    meaning: str
    style: str


def scatter(
    layers: Sequence[ChartLayer],
    title: str,
    notes: Sequence[str] = (),
    center: Sequence[float] = (0, 0),
    reach: float = 12.0,
) -> Group:
    """A framed picture with a legend; later layers lie over earlier ones.

    It shows points within ``reach`` of ``center``; points further out are drawn at the frame, and the legend counts them as
    beyond it. The legend also states points that are not finite. Both axes have the same scale, since a character is twice as
    high as wide.
    """
    points = np.concatenate([layer.points for layer in layers])
    near = points[np.linalg.norm(points - center, axis=1) <= reach]
    near = near if len(near) else np.array([center], dtype=np.float64)
    low, high = near.min(0), near.max(0)
    unit = max((high[0] - low[0]) / (WIDTH - 3), (high[1] - low[1]) / (2 * (HEIGHT - 1)), 1e-9)
    middle, cell = (low + high) / 2, np.array([unit, 2 * unit])
    grid: list[list[ChartLayer | None]] = [[None] * WIDTH for _ in range(HEIGHT)]
    for layer in layers:
        for column, line in _cells(layer.points, middle, cell):
            grid[line][column] = layer
    picture, legend = Text(no_wrap=True, overflow="crop"), Text()
    frame = "+" + "-" * WIDTH + "+"
    picture.append(frame, "dim")
    for row in grid:
        picture.append("\n|", "dim")
        for shown in row:
            picture.append(shown.symbol if shown else " ", shown.style if shown else "")
        picture.append("|", "dim")
    picture.append(f"\n{frame}", "dim")
    for layer in layers:
        if len(layer.points):
            legend.append(f"{layer.symbol} ", layer.style)
            legend.append(f"{layer.meaning}{_whereabouts(layer, grid, middle, cell)}\n")
    legend.append("\n".join(notes))
    legend.rstrip()
    return Group(Text(title), picture, legend)


def _cells(points: Points, middle: Points, cell: Points) -> list[tuple[int, int]]:
    """Column and row of each finite point; points outside of the frame are moved to its edge."""
    finite = points[np.isfinite(points).all(1)]
    places = np.round((finite - middle) / cell * [1, -1] + [(WIDTH - 1) / 2, (HEIGHT - 1) / 2])
    return [(int(x), int(y)) for x, y in np.clip(places, 0, [WIDTH - 1, HEIGHT - 1])]


def _whereabouts(layer: ChartLayer, grid: Sequence[Sequence[ChartLayer | None]], middle: Points, cell: Points) -> str:
    """The points of a layer that the picture does not show: under others, beyond the frame, or not finite."""
    finite = layer.points[np.isfinite(layer.points).all(1)]
    if not len(finite):
        return ", which are not finite"
    beyond = np.abs(finite - middle) > cell * [WIDTH / 2, HEIGHT / 2]
    if beyond.any():
        far = finite[np.linalg.norm(finite - middle, axis=1).argmax()]
        return f", beyond the frame: as far as ({far[0]:.3g}, {far[1]:.3g})"
    over = [grid[row][column] for column, row in _cells(layer.points, middle, cell)]
    hidden = {shown.symbol for shown in over if shown and shown is not layer}
    return f" (under {' and '.join(sorted(hidden))})" if hidden and layer not in over else ""
