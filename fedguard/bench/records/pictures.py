"""Reconstructions as pictures beside a record: what was there above, what was found below.

runs/<run>/artifacts/<cell>-seed-003-<name>.png   a grid of both
                     <cell>-seed-003-<name>.npz   the same as arrays ``truth`` and ``found``, float32 [B, *shape]
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedguard.bench.records.store import RunFolder, write_atomically

if TYPE_CHECKING:
    from fedguard.contracts import Examples, Reconstruction
    from fedguard.metrics.reconstruction import Range

Pixels = NDArray[np.uint8]
Reals = NDArray[np.floating[Any]]

#: The most images in one picture, and in one row of it.
IMAGES, COLUMNS = 64, 16
#: Small images are enlarged to at least this many pixels.
SIDE = 64
#: Pixels and shade of the lines between images.
LINE, SHADE = 4, 96


def save(
    folder: RunFolder, cell: str, seed: int, name: str, claim: Reconstruction, truth: Examples, value_range: Range
) -> list[Path]:
    """Write a reconstruction of the first `IMAGES` true inputs; inputs that `grid` cannot draw are stored as arrays only.

    Returns:
        the files that were written.

    Raises:
        ContractError: the claim has another shape than the truth.
        OSError: the folder cannot be written.
    """
    from fedguard.metrics.reconstruction import align_claims

    found, _ = align_claims(claim.x, truth.x, value_range, max(len(claim.x), len(truth)))
    x, drawn = truth.x[:IMAGES].float().numpy(), found[:IMAGES].float().numpy()
    path = folder.path / "artifacts" / f"{cell}-seed-{seed:03d}-{name}.npz"
    arrays = io.BytesIO()
    np.savez(arrays, truth=x, found=drawn)
    write_atomically(path, arrays.getvalue())
    pixels = grid(x, drawn, value_range)
    if pixels is None:
        return [path]
    write_atomically(path.with_suffix(".png"), png(pixels))
    return [path, path.with_suffix(".png")]


def load(file: Path | IO[bytes]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Truth and reconstruction, from an ``.npz`` that `save` has written."""
    with np.load(file, allow_pickle=False) as arrays:
        return arrays["truth"], arrays["found"]


def grid(truth: Reals, found: Reals, value_range: Range, least: int = 1) -> Pixels | None:
    """One picture: rows of true images, each above a row of their reconstructions, with lines between.

    Values outside of the range are clipped to it, and values that are not finite are drawn as its middle.

    Args:
        truth, found: float ``[B, C, H, W]`` with C = 1 or 3.
        least: number of columns at least, whether there are images for them or not.

    Returns:
        uint8 ``[height, width]``, or ``[height, width, 3]`` for colors; None for anything but such images.
    """
    if truth.ndim != 4 or truth.shape[1] not in (1, 3):
        return None
    columns = max(least, min(len(truth), COLUMNS))
    starts = range(0, len(truth), columns)
    rows = [_row(x[start : start + columns], value_range, columns) for start in starts for x in (truth, found)]
    colors = rows[0].shape[2]
    line = np.full((LINE, rows[0].shape[1], colors), SHADE, np.uint8)
    picture = np.concatenate([line, *(part for row in rows for part in (row, line))])
    return picture[:, :, 0] if colors == 1 else picture


def png(pixels: Pixels) -> bytes:
    """A PNG file (RFC 2083) of uint8 ``[H, W]``, grayscale, or ``[H, W, 3]``, RGB: 8 bits, rows unfiltered, one IDAT."""
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if pixels.ndim == 2 else 2, 0, 0, 0)
    rows = pixels.reshape(height, -1)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)  # a 0 before each: no filter
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _row(images: Reals, value_range: Range, columns: int) -> Pixels:
    """uint8 ``[height, width, C]``: images side by side, each pixel a square; lines between, and in place of missing images."""
    low, high = value_range
    shares = np.nan_to_num((images.astype(float) - low) / (high - low), nan=0.5, posinf=0.5, neginf=0.5).clip(0, 1)
    points = (255 * shares).round().astype(np.uint8).transpose(0, 2, 3, 1)
    count, height, width, colors = points.shape
    size = -(-SIDE // max(height, width))
    large = points.repeat(size, axis=1).repeat(size, axis=2)
    row = np.full((height * size, columns * (width * size + LINE) + LINE, colors), SHADE, np.uint8)
    for number in range(count):
        left = LINE + number * (width * size + LINE)
        row[:, left : left + width * size] = large[number]
    return row
