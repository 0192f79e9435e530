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
from fedguard.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """Inputs ``[N, *shape]`` with labels ``[N]`` of any kind, and perhaps the natural client of each, ``[N]`` of any kind."""

    x: NDArray[Any]
    y: NDArray[Any]
    client: NDArray[Any] | None = None

    def __getitem__(self, rows: NDArray[np.int64]) -> Part:
        return Part(self.x[rows], self.y[rows], None if self.client is None else self.client[rows])


def assembled(
    where: str,
    train: Part,
    test: Part | None = None,
    *,
    share: float = 0.2,
    value_range: tuple[float, float] | None = None,
    classes: int | None = None,
) -> Dataset:
    """The data set behind the arrays.

    Labels are numbered in sorted order if they are texts; numbers have to be 0 ... C-1 as they are.

    Args:
        where: for messages: the file, or the name of the data.
        test: if there is none, ``share`` of the examples (or so many, if it is a whole number), drawn once with equal shares of each
            class.
        value_range: of the inputs; without one, each column is standardised with mean and deviation of the train part, and the
            range is what the train part then spans.
        classes: how many there are, if some may have no example.

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
    names = np.arange(classes) if classes else _classes(where, train.y, test.y)
    x_train, x_test = train.x, test.x
    if value_range is None:
        x_train, x_test = x_train.astype(np.float64), x_test.astype(np.float64)
        mean, deviation = x_train.mean(0), x_train.std(0)
        deviation[deviation == 0] = 1  # a column that never changes tells nothing, and stays at 0
        x_train, x_test = (x_train - mean) / deviation, (x_test - mean) / deviation
        value_range = float(np.float32(x_train.min())), float(np.float32(x_train.max()))
    elif x_train.min() < value_range[0] or x_train.max() > value_range[1]:
        raise ConfigError(
            f"{where}: expected inputs in [{value_range[0]:g}, {value_range[1]:g}]; got {x_train.min():g} to {x_train.max():g}."
        )
    parts = [
        Examples(
            torch.from_numpy(x.astype(np.float32)),
            torch.from_numpy(np.searchsorted(names, part.y)),
            _numbered(part.client),
        )
        for x, part in ((x_train, train), (x_test, test))
    ]
    return Dataset(parts[0], parts[1], len(names), value_range)


def found(path: str | Path, what: str) -> Path:
    """The path, if something is there.

    Raises:
        ConfigError: nothing is.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise ConfigError(f"{path}: no such {what}. Paths are relative to where `fedguard` was started: {Path.cwd()}.")
    return path


def pixels(where: str, x: NDArray[Any]) -> NDArray[np.float32]:
    """Whole numbers of 0 ... 255 as [0, 1]; what is in [0, 1] already is left."""
    x = x.astype(np.float32)
    high = x.max(initial=0)
    if x.min(initial=0) < 0 or high > 255:
        raise ConfigError(f"{where}: expected pixels in 0 ... 255 or in [0, 1]; got {x.min():g} to {high:g}.")
    return x / 255 if high > 1 else x


def shaped(where: str, x: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """The inputs in another shape of as many values."""
    size = int(np.prod(x.shape[1:]))
    if int(np.prod(shape)) != size:
        raise ConfigError(f"{where}: shape: expected {size} values for each input; got {list(shape)}.")
    return x.reshape(len(x), *shape)


def _check(where: str, part: Part) -> None:
    if not len(part.x):
        raise ConfigError(f"{where}: expected examples; got none.")
    if part.x.ndim < 2:
        raise ConfigError(f"{where}: expected inputs [N, ...]; got shape {list(part.x.shape)}.")
    if part.y.ndim != 1 or len(part.y) != len(part.x):
        raise ConfigError(f"{where}: expected {len(part.x)} labels [N]; got shape {list(part.y.shape)}.")
    if part.client is not None and part.client.shape != part.y.shape:
        raise ConfigError(f"{where}: expected {len(part.x)} clients [N]; got shape {list(part.client.shape)}.")
    if not np.issubdtype(part.x.dtype, np.number) and part.x.dtype != np.bool_:
        raise ConfigError(f"{where}: expected inputs that are numbers; got {part.x.dtype}.")
    if not np.isfinite(part.x.astype(np.float32)).all():
        raise ConfigError(f"{where}: expected finite inputs; some are NaN or infinite. Fill or drop them.")


def _classes(where: str, train: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    """The labels in order; class c is the c-th."""
    names = np.unique(np.concatenate([train, test]))
    if len(names) < 2:
        raise ConfigError(f"{where}: expected at least two classes; got {names.tolist()}.")
    if np.issubdtype(names.dtype, np.number):
        if not np.array_equal(names, np.arange(len(names))):
            gap = next(number for number in range(len(names) + 1) if number not in names)
            raise ConfigError(
                f"{where}: expected labels 0 ... C-1; got {len(names)} different ones from {names[0]} to {names[-1]}, and no {gap}. "
                "Number the classes without gaps, or give them as texts."
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
            f"{where}: expected two examples of each class or more, to split off a test part; class {labels[counts.argmin()]} has one."
        )
    train, test = train_test_split(np.arange(len(part.y)), test_size=share, random_state=0, stratify=part.y)
    return part[train], part[test]


def _numbered(client: NDArray[Any] | None) -> torch.Tensor | None:
    return None if client is None else torch.from_numpy(np.unique(client, return_inverse=True)[1].astype(np.int64))
