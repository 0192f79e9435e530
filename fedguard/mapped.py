"""Update matrices in memory-mapped files: larger than the memory, and read in passes that let go of what they have read.

The system counts the pages of a mapped file as the process's own until it is told that they are done with. `let_go` tells
it; nothing is lost, since the file keeps what was written.
"""

from __future__ import annotations

import mmap
import tempfile
import warnings
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

#: The mapping behind a tensor's storage, by the storage's address, as long as the mapping lives.
_MAPPINGS: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()


def mapped(array: np.memmap[tuple[int, int], np.dtype[np.float32]]) -> Tensor:
    """float32 ``[n, d]``: a memory-mapped matrix as a tensor, without a copy; in mode "r" it may only be read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # rules only read
        tensor = torch.from_numpy(array)
    if array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):  # a private copy would lose what was written
        _MAPPINGS[tensor.untyped_storage().data_ptr()] = vars(array)["_mmap"]
    return tensor


def is_mapped(updates: Tensor) -> bool:
    """Whether the matrix, or the one of which it is a part, was made by `mapped`."""
    return updates.untyped_storage().data_ptr() in _MAPPINGS


def let_go(updates: Tensor) -> None:
    """Hand back the memory that holds what was read or written of a mapped matrix; for any other, nothing."""
    mapping = _MAPPINGS.get(updates.untyped_storage().data_ptr())
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def round_buffer(n: int, d: int, memory: int | None, before: Tensor | None = None) -> Tensor:
    """float32 ``[n, d]`` for the updates of a round, its values left open: in memory if it takes no more than ``memory``
    bytes (None: always), else in a file without a name in the folder for temporary files, which vanishes with it.

    ``before`` is the buffer of the round before, used again where it is large enough.
    """
    if before is not None and before.untyped_storage().nbytes() >= 4 * n * d:
        return before.as_strided((n, d), (d, 1))
    if memory is None or 4 * n * d <= memory:
        return torch.empty(n, d)
    with tempfile.TemporaryFile() as file:
        return mapped(np.memmap(file, np.float32, "w+", shape=(n, d)))
