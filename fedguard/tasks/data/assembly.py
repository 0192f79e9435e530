"""Arrays from any source to a `Dataset`; errors are one line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fedguard.contracts import Dataset, Examples, Preparation
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError, brief, require
from fedguard.tasks.data.values import check_inputs, check_names


@dataclass(frozen=True)
class RawExamples:
    """Inputs ``[N, *shape]`` with labels ``[N]``, numbers or texts, and perhaps the natural clients ``[N]``.

    Texts may have a label of each token, ``[N, length]``.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    client: NDArray[Any] | None = None

    def __getitem__(self, rows: NDArray[np.int64]) -> RawExamples:
        return RawExamples(self.x[rows], self.y[rows], None if self.client is None else self.client[rows])


@dataclass(frozen=True)
class Scale:
    """The standardization of inputs: mean and deviation of each column, float64, and the resulting range."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    value_range: tuple[float, float]


#: Channels of an image: gray, with transparency, colors, with transparency.
MOST_CHANNELS = 4
#: The number of classes ``0 ... C-1``, or their names; numbers may be written as texts.
Classes: TypeAlias = int | tuple[str, ...]


def join_parts(parts: Sequence[RawExamples]) -> RawExamples:
    """The examples of all parts, one after the other; each knows its clients."""
    return RawExamples(
        *(np.concatenate(column) for column in zip(*((one.x, one.y, one.client) for one in parts), strict=True))
    )


def assemble_dataset(
    where: str,
    train: RawExamples,
    test: RawExamples | None = None,
    *,
    share: float = 0.2,
    value_range: tuple[float, float] | None = None,
    scale: Scale | None = None,
    classes: Classes | None = None,
    public: RawExamples | None = None,
    tokens: Tokens | None = None,
    next_token: bool = False,
    shape: Sequence[int] | None = None,
) -> Dataset:
    """The data set behind the arrays.

    Labels are numbered in sorted order if they are texts; numbers have to be 0 ... C-1 as they are. What the data set is
    prepared by comes from the examples themselves unless it is given, or taken from ``public`` ones (see
    `fedguard.contracts.Preparation`).

    Args:
        where: for messages: the file, or the name of the data.
        test: without it, ``share`` of the examples (or ``share`` examples, if it is a whole number) are drawn once: equally
            from each class, or, if the classes do not depend on the examples, each by its own content (see `by_content`).
        value_range: of the inputs; without one, each column is standardized with mean and deviation of the train part, and
            the range is what the train part then spans.
        scale: standardizes columns instead; inputs beyond its range are clipped.
        classes: all classes, whether or not each has examples.
        public: examples from which ``scale`` and ``classes`` are taken; they are neither trained on nor tested on.
        tokens: for texts, of what they consist.
        next_token: whether a label is a token as well; then some classes may have no example.
        shape: of an input, into which flat ones are folded; images of it have their channels first.

    Raises:
        ConfigError: wrong shapes, no examples, values that are not finite, gaps in the labels.
    """
    _check(where, train, next_token)
    train = _reshape_inputs(where, train, shape)
    check_image(where, train.x.shape[1:], shape)
    known = classes is not None or public is not None
    if test is None:
        train, test = by_content(where, train, share) if known and share < 1 else _split(where, train, share)
    else:
        _check(f"{where}, test part", test, next_token)
        test = _reshape_inputs(f"{where}, test part", test, shape)
        if test.x.shape[1:] != train.x.shape[1:]:
            raise ConfigError(
                f"{where}: expected test inputs of the train inputs' shape {list(train.x.shape[1:])}; "
                f"got {list(test.x.shape[1:])}."
            )
    if public is not None:
        _check(f"{where}, public part", public)
        scale = _scale_of(_reshape_inputs(f"{where}, public part", public, shape).x)
    if tokens is not None:
        value_range = (0.0, float(tokens.vocabulary - 1))
    if tokens is not None and next_token:
        names = np.arange(tokens.vocabulary)
    else:
        names = _names(where, train.y, test.y, classes, public)
    owners = _owners(train, test)
    if value_range is None:
        used = scale or _scale_of(train.x)
        inputs = _standardize_inputs(where, used, train.x, test.x)
        value_range = float(np.float32(used.value_range[0])), float(np.float32(used.value_range[1]))
        if scale is not None:
            inputs = inputs[0].clip(*value_range), inputs[1].clip(*value_range)
    else:
        inputs = train.x, test.x
        _within(where, value_range, inputs)
    parts = [
        Examples(
            torch.from_numpy(_plain(x).astype(np.float32)),
            torch.from_numpy(np.searchsorted(names, part.y)),
            None if part.client is None else torch.from_numpy(np.searchsorted(owners, part.client)),
        )
        for x, part in zip(inputs, (train, test), strict=True)
    ]
    return Dataset(parts[0], parts[1], len(names), value_range, tokens)


def _plain(x: NDArray[Any]) -> NDArray[Any]:
    """Large integers by way of float64, as they come where one value among them is no integer."""
    return x.astype(np.float64) if x.dtype.kind in "iu" and x.dtype.itemsize == 8 else x


def check_classes(owner: str, classes: Classes | None, *, numbered: bool = True) -> None:
    """Raise `ConfigError` where there cannot be these classes; if ``numbered``, their number may be given too."""
    names = classes if isinstance(classes, tuple) else range(2 if classes is None else classes)
    wanted = f"{'their number, or ' * numbered}their names, two or more different ones"
    require(len(set(names)) == len(names) >= 2, f"{owner}: classes: expected {wanted}; got {brief(classes)}.")


def pixels(where: str, largest: float, *parts: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Pixels of 0 ... ``largest`` as [0, 1]. ``largest`` is given, since one bright pixel must not dim other images."""
    low, high = (function([float(function(x)) for x in parts if x.size] or [0.0]) for function in (np.min, np.max))
    if not (low >= 0 and high <= largest):  # NaN too
        raise ConfigError(
            f"{where}: expected pixels in 0 ... {largest:g}; got {low:g} to {high:g}. Set largest to what a pixel may be."
        )
    if high <= 1 < largest:
        raise ConfigError(
            f"{where}: expected pixels in 0 ... {largest:g}; none is above 1. If they are in [0, 1] already, set largest: 1."
        )
    return tuple(x.astype(np.float32) / np.float32(largest) for x in parts)


def describe_preparation(
    value_range: tuple[float, float] | None, classes: Classes | None, public: str | None = None, remedy: str = ""
) -> Preparation:
    """Of inputs that are standardized, and classes that are counted, unless range and classes are given or public."""
    if public is not None:
        return Preparation("public", f"scale, range and classes of {Path(public).name}")
    if value_range is None or classes is None:
        missing = ["scale and range"] * (value_range is None) + ["classes"] * (classes is None)
        return Preparation("records", " and ".join(missing), f"Give value_range and classes{remedy}.")
    return Preparation("given", f"inputs in [{value_range[0]:g}, {value_range[1]:g}], classes")


def _reshape_inputs(where: str, part: RawExamples, shape: Sequence[int] | None) -> RawExamples:
    """Flat inputs folded into a shape; others have it already, but for axes of length 1: to fold them would mix up values."""
    if shape is None:
        return part
    there, size = part.x.shape[1:], int(np.prod(part.x.shape[1:]))
    if int(np.prod(shape)) != size:
        raise ConfigError(f"{where}: shape: expected {size} values for each input; got {list(shape)}.")
    if len(there) > 1 and [one for one in there if one > 1] != [one for one in shape if one > 1]:
        raise ConfigError(
            f"{where}: shape: expected flat inputs, or such of the shape {list(shape)}; got {list(there)}, whose values would "
            "be mixed up. Put their axes into that order: x.transpose."
        )
    return replace(part, x=part.x.reshape(len(part.x), *shape))


def check_image(where: str, shape: Sequence[int], declared: Sequence[int] | None = None) -> None:
    """Refuse images with their channels last; everything here takes inputs of three axes as [channels, height, width].

    Args:
        declared: the shape, where somebody said it; it tells where images of few pixels have their channels.
    """
    if len(shape) != 3 or shape[0] == 1 or not shape[2] <= MOST_CHANNELS < max(shape[:2]):
        return
    got = f"{where}: expected images [channels, height, width]; got {list(shape)}, whose channels"
    if min(shape[:2]) > MOST_CHANNELS:
        raise ConfigError(f"{got} seem to be last. Put them first: x.transpose(0, 3, 1, 2).")
    if declared is None:
        raise ConfigError(
            f"{got} may be first or last. If last, put them first: x.transpose(0, 3, 1, 2). If first, say so, as npz and "
            f"function take it: shape: {list(shape)}."
        )


def _check(where: str, part: RawExamples, next_token: bool = False) -> None:
    if part.x.ndim and not len(part.x):
        raise ConfigError(f"{where}: expected examples; got none.")
    if part.x.ndim < 2 or not part.x.size:
        raise ConfigError(f"{where}: expected inputs [N, ...]; got shape {list(part.x.shape)}.")
    each = next_token and part.y.shape == part.x.shape
    if not each and part.y.shape != part.x.shape[:1]:
        raise ConfigError(f"{where}: expected {len(part.x)} labels [N]; got shape {list(part.y.shape)}.")
    if part.client is not None and part.client.shape != part.y.shape[:1]:
        raise ConfigError(f"{where}: expected {len(part.x)} clients [N]; got shape {list(part.client.shape)}.")
    check_inputs(where, part.x)
    check_names(where, "labels", part.y.reshape(-1))
    if part.client is not None:
        check_names(where, "clients", part.client)


def _names(
    where: str, train: NDArray[Any], test: NDArray[Any], classes: Classes | None, public: RawExamples | None
) -> NDArray[Any]:
    """The labels in order; class c is the c-th."""
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise ConfigError(f"{where}: expected labels of one kind; got {train.dtype} and {test.dtype}.")
    if public is not None:
        names = np.unique(public.y)
    elif classes is not None:
        names = np.arange(classes) if isinstance(classes, int) else np.unique(classes)
    else:
        return _find_class_names(where, train, test)
    if train.dtype.kind == "U":
        names = np.sort(names.astype(str))
    labels = np.concatenate([train, test])
    alike = (names.dtype.kind == "U") == (labels.dtype.kind == "U")
    unknown = np.setdiff1d(labels, names) if alike else labels
    if len(names) < 2 or len(unknown):
        got = f"label {brief(unknown[0].item())}" if len(unknown) else f"{len(names)} classes"
        raise ConfigError(f"{where}: expected labels among the classes {_few(names)}, two or more; got {got}.")
    return names


def _few(names: NDArray[Any]) -> str:
    shown = ", ".join(map(str, names[:3]))
    return f"{shown} ... {names[-1]}" if len(names) > 4 else ", ".join(map(str, names))


def _find_class_names(where: str, train: NDArray[Any], test: NDArray[Any]) -> NDArray[Any]:
    names = np.unique(np.concatenate([train, test]))
    if len(names) < 2:
        raise ConfigError(f"{where}: expected at least two classes; got {brief(names.tolist())}.")
    if np.issubdtype(names.dtype, np.number):
        odd = np.flatnonzero(names != np.arange(len(names)))
        if len(odd):
            raise ConfigError(
                f"{where}: expected labels 0 ... C-1; got {len(names)} different ones from {names[0]} to {names[-1]}, with "
                f"{names[odd[0]]} in the place of {odd[0]}. Number the classes without gaps, or name them by texts: 'c1'."
            )
    _check_seen(where, train, test)
    return names


def _check_seen(where: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    unseen = np.setdiff1d(test, train)
    if len(unseen):
        raise ConfigError(
            f"{where}: expected train examples of each class; class {brief(unseen[0].item())} is in the test part alone."
        )


def _split(where: str, part: RawExamples, share: float) -> tuple[RawExamples, RawExamples]:
    from sklearn.model_selection import train_test_split

    labels, counts = np.unique(part.y, return_counts=True)
    if counts.min() < 2:
        raise ConfigError(
            f"{where}: expected two examples of each class or more, to split off a test part; class "
            f"{brief(labels[counts.argmin()].item())} has one."
        )
    try:
        train, test = train_test_split(np.arange(len(part.y)), test_size=share, random_state=0, stratify=part.y)
    except ValueError as error:
        raise ConfigError(f"{where}: a test part of {share} cannot be split off: {error}.") from None
    return part[train], part[test]


def by_content(where: str, part: RawExamples, share: float) -> tuple[RawExamples, RawExamples]:
    """Train and test part, such that no example affects the part of another.

    An example is kept for testing if a hash of its own values and label is below ``share``. Equal examples are in one part,
    and the sizes of the parts are not fixed.
    """
    kept = np.array([_hash_example(x, y) < share for x, y in zip(part.x, part.y, strict=True)])
    for rows, what in ((~kept, "training"), (kept, "testing")):
        if not rows.any():
            raise ConfigError(
                f"{where}: of {len(kept)} examples none is drawn for {what}. Give a test part, or more examples."
            )
    return part[np.flatnonzero(~kept)], part[np.flatnonzero(kept)]


def _hash_example(x: NDArray[Any], y: Any) -> float:
    """In [0, 1): the same for the same numbers, whatever their type."""
    label = y.item() if isinstance(y, np.generic) else y
    told = str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
    digest = hashlib.blake2b((x.astype(np.float64) + 0.0).tobytes(), digest_size=8, key=b"test part")
    digest.update(told.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big") / 2**64


def _scale_of(x: NDArray[Any]) -> Scale:
    """Mean and deviation column by column; one that never changes becomes 0."""
    x = x.astype(np.float64)
    low, high, mean, deviation = x.min(0), x.max(0), x.mean(0), x.std(0)
    constant = (low == high) | (deviation == 0)  # 0 too where squares are too small for a number
    mean, deviation = np.where(constant, x[0], mean), np.where(constant, 1, deviation)
    return Scale(mean, deviation, (float(((low - mean) / deviation).min()), float(((high - mean) / deviation).max())))


def _standardize_inputs(
    where: str, scale: Scale, train: NDArray[Any], test: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Less the mean and over the deviation, column by column."""
    if scale.mean.shape != train.shape[1:]:
        raise ConfigError(
            f"{where}: expected inputs of the shape {list(scale.mean.shape)} that the public ones have; got "
            f"{list(train.shape[1:])}."
        )
    train, test = train.astype(np.float64), test.astype(np.float64)
    for part in (train, test):  # in place: there may be gigabytes of them
        np.subtract(part, scale.mean, out=part)
        np.divide(part, scale.deviation, out=part)
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


def _owners(*parts: RawExamples) -> NDArray[Any]:
    """The natural clients of all parts, in order; client c is the c-th."""
    named = [part.client for part in parts if part.client is not None]
    return np.unique(np.concatenate(named)) if named else np.empty(0)
