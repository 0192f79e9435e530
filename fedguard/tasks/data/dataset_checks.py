"""A data set that a user's own function put together, held against the contract."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedguard.contracts import Dataset, Examples
from fedguard.contracts.tasks import NOT_ASKED, Tokens
from fedguard.errors import require
from fedguard.tasks.data.assembly import check_image


def check_dataset(
    where: str, dataset: Dataset, *, every_class: bool = True, shape: Sequence[int] | None = None
) -> Dataset:
    """The data set, if it is what `fedguard.contracts.Dataset` says.

    Args:
        every_class: whether each class has to have a train example; where classes are public it need not.
        shape: of an input, where somebody said it.

    Raises:
        ConfigError: it is not.
    """
    classes, ends = dataset.classes, dataset.value_range
    require(
        isinstance(classes, int) and classes >= 2, f"{where}: classes: expected an int, 2 or more; got {classes!r}."
    )
    require(
        isinstance(ends, tuple)
        and len(ends) == 2
        and all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends),
        f"{where}: value_range: expected a tuple of two finite numbers; got {ends!r}.",
    )
    for name, part in (("train", dataset.train), ("test", dataset.test)):
        require(
            isinstance(part, Examples) and isinstance(part.x, Tensor) and isinstance(part.y, Tensor),
            f"{where}: {name}: expected fedguard.contracts.Examples of tensors x and y; got {_describe_data(part)}.",
        )
        _check_kinds(f"{where}: {name}: expected", part)
        _check_values(f"{where}: {name}: expected", part, dataset)
    require(
        shape is None or dataset.shape == tuple(shape),
        f"{where}: shape: expected inputs of the declared shape {list(shape or ())}; got {list(dataset.shape)}.",
    )
    check_image(where, dataset.shape, shape)
    if dataset.tokens is not None:
        given: object = dataset.tokens
        require(isinstance(given, Tokens), f"{where}: tokens: expected Tokens; got {given!r}.")
        _check_tokens(where, dataset, dataset.tokens)
    _check_range(where, dataset)
    if dataset.tokens is None and every_class:
        counts = torch.bincount(dataset.train.y, minlength=classes)
        require(
            bool(counts.all()),
            f"{where}: expected train examples of each class; class {int(counts.argmin())} has none.",
        )
    return dataset


def _check_kinds(expected: str, part: Examples) -> None:
    x, y, client = part.x, part.y, part.client
    require(
        x.dtype == torch.float32 and y.dtype == torch.int64,
        f"{expected} inputs in float32 and labels in int64; got {x.dtype} and {y.dtype}.",
    )
    require(
        x.device.type == y.device.type == "cpu" and x.layout == torch.strided and not x.requires_grad,
        f"{expected} dense tensors in main memory that need no gradient; got {x.layout} on {x.device}, with "
        f"requires_grad={x.requires_grad}.",
    )
    require(
        client is None
        or (
            isinstance(client, Tensor)
            and client.dtype == torch.int64
            and client.shape == y.shape[:1]
            and not (client < 0).any()
        ),
        f"{expected} clients [N] in int64, numbered from 0; got {_describe_data(client)}.",
    )


def _check_values(expected: str, part: Examples, dataset: Dataset) -> None:
    x, y = part.x, part.y
    each = dataset.tokens is not None and y.shape == (len(y), *dataset.shape)
    wanted = f"labels [N]{' or [N, length]' if dataset.tokens else ''}"
    require(y.ndim == 1 or each, f"{expected} {wanted}; got shape {list(y.shape)}.")
    require(len(y) > 0, f"{expected} examples; got none.")
    shape = (len(y), *dataset.shape)
    require(x.shape == shape, f"{expected} inputs of shape {list(shape)}; got {list(x.shape)}.")
    require(x.ndim > 1 and x.numel() > 0, f"{expected} inputs [N, ...]; got shape {list(x.shape)}.")
    if each:
        asked = y != NOT_ASKED
        require(
            bool(asked.any(1).all()),
            f"{expected} a label in each text that is asked for, not {NOT_ASKED}; one has none.",
        )
        y = y[asked]
    low, high = int(y.min()), int(y.max())
    require(low >= 0 and high < dataset.classes, f"{expected} labels below {dataset.classes}; got {low} to {high}.")
    require(bool(x.isfinite().all()), f"{expected} finite inputs; some are NaN or infinite.")


def _check_tokens(where: str, dataset: Dataset, tokens: Tokens) -> None:
    require(
        2 <= tokens.vocabulary <= 2**24,
        f"{where}: tokens: expected a vocabulary from 2 to 2^24; got {tokens.vocabulary}.",
    )
    require(
        dataset.value_range == (0.0, float(tokens.vocabulary - 1))
        and all(bool((p.x == p.x.round()).all()) for p in (dataset.train, dataset.test)),
        f"{where}: tokens: expected whole numbers in a value_range of (0, {tokens.vocabulary - 1}), below the vocabulary.",
    )
    require(
        tokens.padding is None or 0 <= tokens.padding < tokens.vocabulary,
        f"{where}: tokens: padding: expected a number below the vocabulary of {tokens.vocabulary}; got {tokens.padding}.",
    )


def _check_range(where: str, dataset: Dataset) -> None:
    """Train inputs lie in the range; test inputs may lie beyond where the train part's own columns set it, not if texts."""
    low, high = (float(np.float32(end)) for end in dataset.value_range)
    for name, part in (("train", dataset.train), *([("test", dataset.test)] if dataset.tokens else [])):
        least, most = float(part.x.min()), float(part.x.max())
        require(
            low <= least and most <= high,
            f"{where}: {name}: expected inputs in the value_range [{low:g}, {high:g}]; got {least:g} to {most:g}.",
        )


def _describe_data(got: object) -> str:
    if isinstance(got, Examples):
        return f"x of type {type(got.x).__name__} and y of type {type(got.y).__name__}"
    if not isinstance(got, Tensor):
        return type(got).__name__
    return f"{got.dtype} of shape {list(got.shape)}" + (", some below 0" if (got < 0).any() else "")
