"""The operations that pass over a whole update matrix, written to save memory: blocks that fit the cache, no copies.

Each works on float32 ``[n, d]``, does not change it, and needs one block of scratch. A matrix may be a memory-mapped file
that is larger than the memory: see `fedguard.memmap`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedguard.memmap import is_mapped, let_go

#: Bytes of scratch that one block of columns may take where it is worked on: about a core's second-level cache.
BLOCK_BYTES = 2 << 20
#: Bytes of one block in a pass that mostly reads: memory and disks are fastest at long runs of each row.
LONG_BYTES = 8 << 20
#: The largest value that an update may hold: sums of thousands of them are finite in float32, unlike sums of 3e38.
LARGEST = 2.0**112
#: Below this, squares of float32 values are rounded more coarsely than larger squares, or underflow.
FAINT = 2.0**-110
#: Where the central update's squared length is more than this times its typical squared distance to the others, the updates
#: are far from the origin.
FAR = 4.0


def column_blocks(n: int, d: int, size: int = BLOCK_BYTES) -> Iterator[slice]:
    """Slices over d columns such that n rows of one slice, in float32, fit ``size`` bytes."""
    # With very many rows, slivers of a few columns would cost more in calls than they save in cache
    width = max(256, size // (4 * max(n, 1)))
    return (slice(start, min(start + width, d)) for start in range(0, d, width))


def walk(updates: Tensor, rows: int | None = None, size: int = BLOCK_BYTES) -> Iterator[slice]:
    """`column_blocks` of a matrix, for scratch of ``rows`` rows; releases the memory of a mapped one on the way."""
    n, d = updates.shape
    for block in column_blocks(rows or n, d, size):
        yield block
        let_go(updates)


def _stretches(updates: Tensor) -> Iterator[slice]:
    """Slices for a pass that needs no scratch: all columns at once, or long blocks if the matrix is in a file."""
    return walk(updates, size=LONG_BYTES) if is_mapped(updates) else iter([slice(0, updates.shape[1])])


def unusable_rows(updates: Tensor) -> list[int]:
    """The rows that hold NaN, infinity or a value beyond `LARGEST`, in ascending order: sums of the others are finite.

    One pass computes the lengths, at the cost of a sum; a second one reads only rows with a length that float32 cannot hold.
    """
    bad: set[int] = set()
    for block in _stretches(updates):
        lengths = torch.linalg.vector_norm(updates[:, block], dim=1).tolist()
        bad.update(row for row, length in enumerate(lengths) if not math.isfinite(length))
    for row in sorted(bad):
        if bool((updates[row].abs() <= LARGEST).all()):
            bad.remove(row)
        let_go(updates)
    return sorted(bad)


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite. A finite sum proves it; one that overflows proves nothing."""
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def combine_rows(updates: Tensor, weights: Tensor) -> Tensor:
    """float32 ``[d]``: ``weights @ updates`` (weights ``[n]``), in one pass over the rows that count."""
    used = weights.nonzero()[:, 0].tolist()
    # Rules such as krum select a few rows: to read these alone is faster than a product over all
    if 4 * len(used) > len(weights):
        shares, total = weights.to(updates.dtype).to(updates.device), torch.empty_like(updates[0])
        for block in _stretches(updates):
            torch.mv(updates[:, block].T, shares, out=total[block])
        return total
    total = torch.zeros_like(updates[0])
    for row in used:
        total.add_(updates[row], alpha=float(weights[row]))
        let_go(updates)
    return total


def distances_from(updates: Tensor, point: Tensor | None = None) -> Tensor:
    """float64 ``[n]``: ``|x_i - p|`` for a point p (float32 ``[d]``), or the lengths ``|x_i|``, in one pass.

    Blocks are measured in float32 and their squares added up in float64. If float32 overflows or underflows, the pass is
    repeated in float64.
    """
    found = _distances(updates, point, updates.dtype)
    lost = not all_finite(found) or _underflown(updates, found.square(), point)
    return _distances(updates, point, torch.float64) if lost else found


def length(vector: Tensor) -> float:
    """``|v|`` of a vector ``[d]`` at any magnitude; torch's own is 0 or infinite for float32 below 1e-23 and beyond 1e19."""
    return float(distances_from(vector[None])[0])


def _distances(updates: Tensor, point: Tensor | None, dtype: torch.dtype) -> Tensor:
    squares = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for block in walk(updates, size=LONG_BYTES if point is None else BLOCK_BYTES):
        rows = updates[:, block].to(dtype)
        if point is not None:
            rows = rows - point[block]
        squares += torch.linalg.vector_norm(rows, dim=1).double().square()
    return squares.sqrt().cpu()


def projections(updates: Tensor, draw: torch.Generator) -> Tensor:
    """float64 ``[n]``: inner products of the rows with a Gaussian direction, which separate different rows almost surely."""
    found = torch.zeros(len(updates), dtype=torch.float64, device=updates.device)
    for block in walk(updates):
        rows = updates[:, block].double()
        found += rows @ torch.randn(rows.shape[1], generator=draw, dtype=torch.float64).to(rows.device)
    return found.cpu()


def sort_rows(block: Tensor) -> Tensor:
    """``[n, b]``: each column sorted in ascending order, in place if the block is stored column by column."""
    columns = block.T.contiguous()
    if columns.device.type == "cpu":
        columns.numpy().sort(axis=1)  # numpy's vectorized sort: ten times faster than torch's on short columns
    else:
        columns = columns.sort(dim=1).values
    return columns.T


def gram_matrix(updates: Tensor, others: Sequence[Tensor] = ()) -> Tensor:
    """float64 ``[k, k]``: inner products of the updates, ``others`` (float32 ``[d]`` each) and the origin.

    The reference point is the most central update; the mean would be far from the bulk if one row is a huge outlier. Products
    about the origin need no copy of the updates. But if the updates are close together and far from the origin, float32 would
    lose their distances; then each block is shifted to the central update first. A sample of the coordinates decides, and
    the products found without the shift are checked again.
    Blocks are multiplied in float32 and added up in float64. If float32 overflows or underflows, all is done in float64.
    """
    row, far = _central_row(_sample_products(updates))
    inner = None if far else _gram(updates, others, None)
    if inner is not None:
        row, far = _central_row(inner[: len(updates), : len(updates)])
    if inner is None or far:
        return _gram(updates, others, updates[row])
    across = inner[row]
    return inner - across[:, None] - across[None, :] + across[row]


def _gram(updates: Tensor, others: Sequence[Tensor], center: Tensor | None) -> Tensor:
    inner = _products(updates, others, center, updates.dtype)
    rows = [*updates, *others, torch.zeros_like(updates[0])]
    lost = not all_finite(inner) or _underflown(rows, inner.diagonal(), center)
    return _products(updates, others, center, torch.float64) if lost else inner


def _underflown(rows: Sequence[Tensor] | Tensor, squares: Tensor, point: Tensor | None) -> bool:
    """Whether any squared distance of ``rows`` from ``point`` is too small for float32; true zeros do not count.

    Only rows with a tiny square, at ``point`` or close to it, are read again.
    """
    faint = (squares < FAINT * rows[0].numel()).nonzero()[:, 0].tolist()
    return any(bool(rows[i].any()) if point is None else not torch.equal(rows[i], point) for i in faint)


def _products(updates: Tensor, others: Sequence[Tensor], center: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Inner products of updates, others and the origin about ``center`` (None: about the origin), in blocks of ``dtype``."""
    n, k = len(updates), len(updates) + len(others) + 1
    inner = torch.zeros(k, k, dtype=torch.float64, device=updates.device)
    scratch = torch.empty(0, dtype=dtype, device=updates.device)
    copied = center is not None or dtype != updates.dtype
    for block in walk(updates, k, BLOCK_BYTES if copied else LONG_BYTES):
        rows = updates[:, block]
        beside = torch.stack([*(other[block] for other in others), torch.zeros_like(rows[0])]).to(dtype)
        if copied:
            about = torch.zeros_like(rows[0]) if center is None else center[block]
            rows = torch.sub(rows.to(dtype), about, out=scratch.resize_(rows.shape))
            beside -= about
        inner[:n, :n] += _multiply_by_transpose(rows)
        # Without others and about the origin itself, the last row and column are 0 already
        if others or center is not None:
            inner[:n, n:] += rows @ beside.T
            inner[n:, n:] += beside @ beside.T
    inner[n:, :n] = inner[:n, n:].T
    return ((inner + inner.T) / 2).cpu()  # a float32 product is not always symmetric to the last bit


def _multiply_by_transpose(rows: Tensor) -> Tensor:
    """``rows @ rows.T``: numpy's does half the work, since it sees that the factors are one."""
    if rows.device.type != "cpu":
        return rows @ rows.T
    if rows.stride(1) != 1 or rows.stride(0) < rows.shape[1]:
        rows = rows.contiguous()  # BLAS does not take other strides, and without it numpy is slow
    array = rows.numpy()
    with np.errstate(all="ignore"):  # an overflow is seen by the caller
        return torch.from_numpy(array @ array.T)


def _sample_products(updates: Tensor, coordinates: int = 4096) -> Tensor:
    """float64 ``[n, n]``: inner products of the updates on evenly spaced runs of coordinates."""
    d, runs = updates.shape[1], coordinates // 64
    if d <= coordinates:
        sample = updates.double()
    else:
        # Runs spread over all layers, whose scales differ, and each a few cache lines long
        starts = torch.linspace(0, d - 64, runs).long().tolist()
        parts = []
        for start in starts:
            parts.append(updates[:, start : start + 64].double())
            let_go(updates)
        sample = torch.cat(parts, 1)
    return (sample @ sample.T).cpu()


def _central_row(products: Tensor) -> tuple[int, bool]:
    """The row with the smallest median distance to the others, and whether this is small compared with its length."""
    lengths = products.diagonal()
    typical = (lengths[:, None] + lengths - 2 * products).median(dim=1).values
    row = int(typical.argmin())
    return row, bool(lengths[row] > FAR * typical[row])
