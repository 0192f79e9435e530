"""Small charts for the terminal, and where points lie along an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def is_logarithmic(positions: Sequence[float]) -> bool:
    """Whether the range of the numbers is so large that only a logarithmic axis can show them, as for Dirichlet's alpha."""
    return min(positions) > 0 and max(positions) / min(positions) >= 30


def axis_of(positions: Sequence[float] | None, points: int) -> tuple[float, ...]:
    """Ascending positions of the points on the axis: as numbers, as logarithms, or evenly spaced if they are no numbers."""
    if positions is None:
        return tuple(float(number) for number in range(points))
    numbers = [math.log(x) if is_logarithmic(positions) else x for x in positions]
    return tuple(x if numbers[-1] >= numbers[0] else -x for x in numbers)


def chart(
    title: str, lines: Mapping[str, Sequence[float | None]], labels: Sequence[str], axis: Sequence[float], width: int
) -> str:
    """A chart in characters, one letter for each line.

    Args:
        lines: by name, one value per point; None if there is none.
        labels: of the points.
        axis: ascending positions of the points.
        width: in characters. The vertical axis goes from 0 to 100 if all values fit, else from the smallest to the largest.
    """
    height, margin = 11, 7
    values = [value for line in lines.values() for value in line if value is not None]
    if not values:
        return ""
    low, high = (0.0, 100.0) if min(values) >= 0 and 20 <= max(values) <= 100 else (min(values), max(values))
    columns = [round((x - axis[0]) / ((axis[-1] - axis[0]) or 1) * (width - margin - 2)) for x in axis]
    grid = [[" "] * (width - margin) for _ in range(height)]
    for number, line in enumerate(lines.values()):
        for column, value in zip(columns, line, strict=True):
            if value is not None:
                row = grid[height - 1 - round((value - low) / ((high - low) or 1) * (height - 1))]
                row[column] = _letter(number) if row[column] == " " else "*"
    drawn = [f"{high - (high - low) * i / (height - 1):5.3g} │{''.join(row)}".rstrip() for i, row in enumerate(grid)]
    below = [" "] * (width - margin + 8)
    for column, label in zip(columns, labels, strict=True):
        if all(one == " " for one in below[max(column - 1, 0) : column + len(label)]):
            below[column : column + len(label)] = label
    legend = "   ".join(f"{_letter(number)} {name}" for number, name in enumerate(lines))
    axis_line = f"{'':6}└{'─' * (width - margin)}"
    return "\n".join([title, *drawn, axis_line, f"{'':7}{''.join(below).rstrip()}", f"{legend}   * several"])


def _letter(number: int) -> str:
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[number % 52]
