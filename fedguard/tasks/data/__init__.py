"""Data sets, one file each; `assembly` is the one way from arrays to a data set."""

from __future__ import annotations

from functools import lru_cache

from fedguard.contracts import Data, Dataset


@lru_cache(maxsize=2)
def loaded(data: Data) -> Dataset:
    """``data.load()``, kept for whoever asks next."""
    return data.load()
