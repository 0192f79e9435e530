"""Update matrices in memory-mapped files: larger than the memory, and read in passes that release the pages they have read.

The system counts the pages of a mapped file as memory of the process until they are released. `let_go` releases them;
nothing is lost, since the file keeps what was written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import warnings
from collections.abc import Iterator
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

#: The mapping behind a tensor's storage, by the storage's address, as long as the mapping lives.
_MAPPINGS: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()


def wrap_memmap(array: np.memmap[tuple[int, int], np.dtype[np.float32 | np.float64]]) -> Tensor:
    """``[n, d]``: a memory-mapped matrix as a tensor, without a copy; in mode "r" it may only be read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # rules only read
        tensor = torch.from_numpy(array)
    if array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):  # a private copy would lose what was written
        # By the storage, which views share: a block of rows or columns finds the mapping of the whole
        _MAPPINGS[tensor.untyped_storage().data_ptr()] = vars(array)["_mmap"]
    return tensor


def is_mapped(updates: Tensor) -> bool:
    """Whether the matrix, or the matrix that it is a view of, was made by `wrap_memmap`."""
    return updates.untyped_storage().data_ptr() in _MAPPINGS


def let_go(updates: Tensor) -> None:
    """Release the memory of the pages of a mapped matrix that were read or written; does nothing for other matrices."""
    mapping = _MAPPINGS.get(updates.untyped_storage().data_ptr())
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def round_buffer(n: int, d: int, memory: int | None, before: Tensor | None = None) -> Tensor:
    """``[n, d]`` of torch's default type for the updates of a round, uninitialized.

    It is in memory if it takes no more than ``memory`` bytes (None: always), else in an unnamed file in the folder for
    temporary files, which is deleted with the tensor.

    ``before`` is the buffer of the previous round, reused if it is large enough.

    Raises:
        OSError: the disk has no room for the file.
    """
    if before is not None and before.untyped_storage().nbytes() >= before.element_size() * n * d:
        # A fresh file each round would have its blocks allocated on disk once more
        return before.as_strided((n, d), (d, 1))
    return torch.empty(n, d) if memory is None or _bytes(n, d) <= memory else _in_a_file(n, d)


def allocate_rows(n: int, d: int, memory: int | None) -> Tensor:
    """``[n, d]`` of zeros, which outlive a round: in memory or in a file, as for `round_buffer`."""
    return torch.zeros(n, d) if memory is None or _bytes(n, d) <= memory else _in_a_file(n, d)


def _bytes(n: int, d: int) -> int:
    return torch.get_default_dtype().itemsize * n * d


def slice_rows(updates: Tensor, memory: int | None) -> Iterator[slice]:
    """Slices over the rows for work that fills them: all at once, or for a matrix in a file as many as ``memory`` bytes hold.

    A slice of a file has a power of two of rows, 1 or more, so that a little more or less memory gives the same slices.
    """
    n, d = updates.shape
    count = max(1, n)
    if is_mapped(updates):
        count = 1 << (max(1, (memory or 0) // (updates.element_size() * d)).bit_length() - 1)
    return (slice(start, min(start + count, n)) for start in range(0, n, count))


def _in_a_file(n: int, d: int) -> Tensor:
    size = _bytes(n, d)
    with tempfile.TemporaryFile() as file:
        try:  # a disk that is full only later would end the process, since only the kernel notices
            os.posix_fallocate(file.fileno(), 0, size) if hasattr(os, "posix_fallocate") else file.truncate(size)
        except OSError as error:
            raise OSError(
                f"no room for {size / 2**30:.2f}G of updates in {tempfile.gettempdir()}: {error.strerror}. "
                "Set TMPDIR to a folder on a larger disk, or raise --memory."
            ) from None
        dtype = np.float64 if torch.get_default_dtype() == torch.float64 else np.float32
        return wrap_memmap(np.memmap(file, dtype, "r+", shape=(n, d)))
