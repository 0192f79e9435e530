"""Data sets, one file each; `assembly` is the one way from arrays to a data set."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from fedguard.contracts import Data, Dataset, Examples
from fedguard.contracts.return_checks import check_return
from fedguard.errors import require
from fedguard.rng import Rng, global_generators


def load_dataset(data: Data) -> Dataset:
    """``data.load()``, kept for whoever asks next."""
    return _outside(data) if data.outside else _load_builtin(data)


def draw_subset(dataset: Dataset, sizes: tuple[int | None, int | None], rng: Rng) -> Dataset:
    """This number of train and of test examples, drawn without replacement, in their order; None takes all of a part.

    With the same stream, a larger subset includes each smaller one. The draw depends on the number of examples alone.

    Raises:
        ConfigError: there are fewer.
    """
    train, test = (
        _draw(name, part, size, rng)
        for name, part, size in zip(("train", "test"), (dataset.train, dataset.test), sizes, strict=True)
    )
    return replace(dataset, train=train, test=test)


def _draw(name: str, part: Examples, size: int | None, rng: Rng) -> Examples:
    if size is None:
        return part
    require(
        size <= len(part),
        f"task.subset.{name}: expected at most the {len(part)} {name} examples of the data; got {size}. Lower it.",
    )
    return part[torch.randperm(len(part), generator=rng.child(name).torch())[:size].sort().values]


def forget() -> None:
    """Let go of what was read from files and functions of the user's own: they may have changed."""
    _outside.cache_clear()


@lru_cache(maxsize=2)
def _load_builtin(data: Data) -> Dataset:
    return _load_data(data)


@lru_cache(maxsize=2)
def _outside(data: Data) -> Dataset:
    return _load_data(data)


def _load_data(data: Data) -> Dataset:
    with global_generators(Rng(0).child("load")):  # the same at each call, in each process, wherever these stand
        return check_return(data, "load", data.load(), Dataset)
