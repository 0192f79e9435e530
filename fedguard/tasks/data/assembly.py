"""From arrays of whatever source to a `Dataset`, with what is wrong with them said in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedguard.contracts import Dataset, Examples
from fedguard.errors import ConfigError, require
from fedguard.tasks.own import oneline


@dataclass(frozen=True)
class Part:
    """Inputs ``[N, *shape]`` with labels ``[N]``, numbers or texts, and perhaps the natural client of each, the same."""

    x: NDArray[Any]
    y: NDArray[Any]
    client: NDArray[Any] | None = None

    def __getitem__(self, rows: NDArray[np.int64]) -> Part:
        return Part(self.x[rows], self.y[rows], None if self.client is None else self.client[rows])


def joined(parts: Sequence[Part]) -> Part:
    """The examples of all parts, one after the other; each knows its clients."""
    return Part(
        *(np.concatenate(column) for column in zip(*((one.x, one.y, one.client) for one in parts), strict=True))
    )


def assembled(
    where: str,
    train: Part,
    test: Part | None = None,
    *,
    share: float = 0.2,
    value_range: tuple[float, float] | None = None,
    characters: int | None = None,
) -> Dataset:
    """The data set behind the arrays.

    Labels are numbered in sorted order if they are texts; numbers have to be 0 ... C-1 as they are.

    Args:
        where: for messages: the file, or the name of the data.
        test: if there is none, ``share`` of the examples (or so many, if it is a whole number) are drawn once, of each class
            alike.
        value_range: of the inputs; without one, each column is standardised with mean and deviation of the train part, and
            the range is what the train part then spans.
        characters: for text, how many characters there are: so many classes, of which some may have no example.

    Raises:
        ConfigError: wrong shapes, no examples, values that are not finite, gaps in the labels.
    """
    _check(where, train)
    if test is None:
        train, test = _split(where, train, share)
    else:
        _check(f"{where}, test part", test)
        if test.x.shape[1:] != train.x.shape[1:]:
            raise ConfigError(
                f"{where}: expected test inputs of the train inputs' shape {list(train.x.shape[1:])}; "
                f"got {list(test.x.shape[1:])}."
            )
    names = np.arange(characters) if characters else _classes(where, train.y, test.y)
    owners = _owners(train, test)
    if value_range is None:
        inputs = _standardised(where, train.x, test.x)
        value_range = float(np.float32(inputs[0].min())), float(np.float32(inputs[0].max()))
    else:
        inputs = train.x, test.x
        _within(where, value_range, inputs)
    parts = [
        Examples(
            torch.from_numpy(x.astype(np.float32)),
            torch.from_numpy(np.searchsorted(names, part.y)),
            None if part.client is None else torch.from_numpy(np.searchsorted(owners, part.client)),
        )
        for x, part in zip(inputs, (train, test), strict=True)
    ]
    return Dataset(parts[0], parts[1], len(names), value_range, characters is not None)


def check_test(owner: str, share: float) -> None:
    """Raise `ConfigError` where ``share`` of the examples cannot be kept for testing."""
    require(0 < share < 1, f"{owner}: test: expected a share between 0 and 1; got {share}.")


def found(path: str | Path, what: str) -> Path:
    """The path, if something is there.

    Raises:
        ConfigError: nothing is.
    """
    try:
        path = Path(path).expanduser()
        there = path.is_dir() if what == "folder" else path.is_file()
    except (OSError, RuntimeError) as error:  # no such user behind ~, a folder that may not be entered
        raise ConfigError(f"{path}: cannot be opened: {oneline(error)}.") from None
    if not there:
        raise ConfigError(f"{path}: no such {what}. Paths are relative to where `fedguard` was started: {Path.cwd()}.")
    return path


def pixels(where: str, *parts: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Whole numbers of 0 ... 255 as [0, 1]; where all parts are in [0, 1] already, they are left."""
    low, high = (function([float(function(x)) for x in parts if x.size] or [0.0]) for function in (np.min, np.max))
    if not (low >= 0 and high <= 255):  # NaN too
        raise ConfigError(f"{where}: expected pixels in 0 ... 255 or in [0, 1]; got {low:g} to {high:g}.")
    images = [x.astype(np.float32) for x in parts]
    return tuple(x / 255 if high > 1 else x for x in images)


def shaped(where: str, x: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """The inputs in another shape of as many values."""
    size = int(np.prod(x.shape[1:]))
    if int(np.prod(shape)) != size:
        raise ConfigError(f"{where}: shape: expected {size} values for each input; got {list(shape)}.")
    return x.reshape(len(x), *shape)


def _check(where: str, part: Part) -> None:
    if part.x.ndim and not len(part.x):
        raise ConfigError(f"{where}: expected examples; got none.")
    if part.x.ndim < 2 or not part.x.size:
        raise ConfigError(f"{where}: expected inputs [N, ...]; got shape {list(part.x.shape)}.")
    if part.y.ndim != 1 or len(part.y) != len(part.x):
        raise ConfigError(f"{where}: expected {len(part.x)} labels [N]; got shape {list(part.y.shape)}.")
    if part.client is not None and part.client.shape != part.y.shape:
        raise ConfigError(f"{where}: expected {len(part.x)} clients [N]; got shape {list(part.client.shape)}.")
    if part.x.dtype.kind not in "biuf":
        raise ConfigError(f"{where}: expected inputs that are numbers; got {part.x.dtype}.")
    columns = [("inputs", part.x), ("labels", part.y), *([] if part.client is None else [("clients", part.client)])]
    for what, values in columns[1:]:
        if values.dtype.kind not in "biufU":
            mend = " Texts are of dtype str." if values.dtype.kind in "OS" else ""
            raise ConfigError(f"{where}: expected {what} that are numbers or texts; got {values.dtype}.{mend}")
    most = np.finfo(np.float32).max
    for what, values in columns:
        if values.dtype.kind == "f" and not (-most <= values.min() and values.max() <= most):  # NaN too
            raise ConfigError(f"{where}: expected finite {what}; some are NaN or infinite. Fill or drop them.")


def _classes(where: str, train: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    """The labels in order; class c is the c-th."""
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise ConfigError(f"{where}: expected labels of one kind; got {train.dtype} and {test.dtype}.")
    names = np.unique(np.concatenate([train, test]))
    if len(names) < 2:
        raise ConfigError(f"{where}: expected at least two classes; got {names.tolist()}.")
    if np.issubdtype(names.dtype, np.number):
        odd = np.flatnonzero(names != np.arange(len(names)))
        if len(odd):
            raise ConfigError(
                f"{where}: expected labels 0 ... C-1; got {len(names)} different ones from {names[0]} to {names[-1]}, with "
                f"{names[odd[0]]} in the place of {odd[0]}. Number the classes without gaps, or name them by texts: 'c1'."
            )
    unseen = np.setdiff1d(test, train)
    if len(unseen):
        raise ConfigError(
            f"{where}: expected train examples of each class; class {unseen[0]} is in the test part alone."
        )
    return names


def _split(where: str, part: Part, share: float) -> tuple[Part, Part]:
    from sklearn.model_selection import train_test_split

    labels, counts = np.unique(part.y, return_counts=True)
    if counts.min() < 2:
        raise ConfigError(
            f"{where}: expected two examples of each class or more, to split off a test part; class "
            f"{labels[counts.argmin()]} has one."
        )
    try:
        train, test = train_test_split(np.arange(len(part.y)), test_size=share, random_state=0, stratify=part.y)
    except ValueError as error:
        raise ConfigError(f"{where}: a test part of {share} cannot be split off: {error}.") from None
    return part[train], part[test]


def _standardised(
    where: str, train: NDArray[Any], test: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Less the train part's mean and over its deviation, column by column; one that never changes is 0 in the train part."""
    train, test = train.astype(np.float64), test.astype(np.float64)
    mean, deviation = train.mean(0), train.std(0)
    constant = (train.min(0) == train.max(0)) | (deviation == 0)  # 0 too where squares are too small for a number
    mean, deviation = np.where(constant, train[0], mean), np.where(constant, 1, deviation)
    for part in (train, test):  # in place: there may be gigabytes of them
        np.subtract(part, mean, out=part)
        np.divide(part, deviation, out=part)
        if max(-part.min(), part.max()) > np.finfo(np.float32).max:
            raise ConfigError(
                f"{where}: a column's values differ by too much to be standardised. Rescale it or drop it."
            )
    return train, test


def _within(where: str, value_range: tuple[float, float], inputs: Sequence[NDArray[Any]]) -> None:
    low, high = min(float(x.min()) for x in inputs), max(float(x.max()) for x in inputs)
    if low < value_range[0] or high > value_range[1]:
        raise ConfigError(
            f"{where}: expected inputs in [{value_range[0]:g}, {value_range[1]:g}]; got {low:g} to {high:g}."
        )


def _owners(*parts: Part) -> NDArray[Any]:
    """The natural clients of all parts, in order; client c is the c-th."""
    named = [part.client for part in parts if part.client is not None]
    return np.unique(np.concatenate(named)) if named else np.empty(0)
