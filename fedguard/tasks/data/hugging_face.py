"""Data sets of the library datasets (Hugging Face): from a folder, or from the hub where a suite pins a commit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, PositiveFloat, Preparation, ProperFraction
from fedguard.errors import ConfigError, MissingExtra, brief, oneline, require
from fedguard.tasks.data.assembly import (
    Classes,
    RawExamples,
    assemble_dataset,
    check_classes,
    describe_preparation,
    pixels,
)


@dataclass(frozen=True, kw_only=True)
class HuggingFace(Data):
    """A data set of Hugging Face's library ``datasets``: a folder that ``save_to_disk`` wrote, or a name on the hub.

    Inputs are images of one size, or lists of numbers of one length. Nothing is fetched unless ``revision`` pins a commit of
    the hub, and no code of a data set is run: the library has run none since version 4.

    Args:
        dataset: a folder, or a name on the hub such as ``ylecun/mnist``.
        input: the column of inputs.
        label: the column of labels. If the data set names its classes, all of these are classes.
        client: a column that names each example's natural client.
        train: the split to train on.
        test: the split to test on; without it, ``share`` of the examples of ``train``.
        share: the share of the examples kept for testing, if there is no test split.
        revision: a commit of the hub, 40 hexadecimal digits.
        largest: what a pixel may be, by which all are divided; without it, columns are standardized.
        classes: their number, or their names; without them, the ones that the data set names, or as many as there are labels.
    """

    name = "hugging_face"
    source = "Lhoest et al., Datasets: A Community Library for Natural Language Processing, EMNLP 2021"
    outside = True

    dataset: str
    input: str = "image"
    label: str = "label"
    client: str | None = None
    train: str = "train"
    test: str | None = None
    share: ProperFraction = 0.2
    revision: str | None = None
    largest: PositiveFloat | None = None
    classes: Classes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)
        require(
            self.revision is None or re.fullmatch("[0-9a-f]{40}", self.revision) is not None,
            f"hugging_face: revision: expected a commit, 40 hexadecimal digits; got {brief(self.revision)}. A branch or a tag "
            "may move.",
        )

    @property
    def preparation(self) -> Preparation:
        return describe_preparation(None if self.largest is None else (0.0, 1.0), self.classes, remedy=", by largest")

    def load(self) -> Dataset:
        splits = _read(self.dataset, self.revision)
        named = None if self.classes is not None else _class_names(splits, self.train, self.label)
        train = self._examples(splits, self.train)
        test = None if self.test is None else self._examples(splits, self.test)
        classes = self.classes if named is None else len(named)
        span = None if self.largest is None else (0.0, 1.0)
        return assemble_dataset(self.dataset, train, test, share=self.share, value_range=span, classes=classes)

    def _examples(self, splits: Any, name: str) -> RawExamples:
        """The examples of a split, in its order.

        Raises:
            ConfigError: no such split or column; inputs that are no numbers of one shape.
        """
        where = f"{self.dataset}, {name}"
        if name not in splits:
            raise ConfigError(f"{self.dataset}: expected a split {name!r}; got {', '.join(map(str, splits))}.")
        rows, wanted = splits[name], [self.input, self.label, *([self.client] if self.client else [])]
        if missing := [column for column in wanted if column not in rows.column_names]:
            raise ConfigError(f"{where}: expected a column {missing[0]!r}; got {', '.join(rows.column_names)}.")
        rows = rows.select_columns(wanted)
        x = _inputs(f"{where}, column {self.input}", rows[self.input])
        if self.largest is not None:
            (x,) = pixels(where, self.largest, x)
        y, owners = np.asarray(rows[self.label]), None if self.client is None else np.asarray(rows[self.client])
        return RawExamples(x, y, owners)


def _read(dataset: str, revision: str | None) -> Any:
    """The splits by name.

    Raises:
        ConfigError: it is neither a folder nor pinned on the hub, or cannot be read.
        MissingExtra: the library is not installed.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtra("hugging_face", "datasets", "hugging_face") from None
    folder = Path(dataset).expanduser()
    if revision is None and not folder.is_dir():
        raise ConfigError(
            f"{dataset}: no such folder. Save one (dataset.save_to_disk), or pin a commit of the hub: {{name: hugging_face, "
            f"dataset: {dataset}, revision: 40 DIGITS}}."
        )
    try:
        found = (
            datasets.load_from_disk(folder) if revision is None else datasets.load_dataset(dataset, revision=revision)
        )
    except Exception as error:  # of the library, of Arrow, of the network
        raise ConfigError(f"{dataset}: cannot be read: {oneline(error)}.") from None
    return found if isinstance(found, dict) else {"train": found}


def _class_names(splits: Any, train: str, label: str) -> list[str] | None:
    """The classes that the data set names, in the order of their numbers; None if it names none."""
    features = getattr(splits.get(train), "features", {})
    names: list[str] | None = getattr(features.get(label), "names", None)
    return names


def _inputs(where: str, values: Any) -> NDArray[Any]:
    """``[N, *shape]``: numbers, or images with their channels first.

    Raises:
        ConfigError: they are something else, or of different shapes.
    """
    listed = [np.asarray(value) for value in values]
    images = bool(listed) and not isinstance(values[0], list | int | float | str)
    if shapes := {one.shape for one in listed[1:] if one.shape != listed[0].shape}:
        raise ConfigError(
            f"{where}: expected inputs of one shape; got {list(listed[0].shape)} and {list(min(shapes))}. Resize them: "
            "dataset.map."
        )
    x = np.stack(listed) if listed else np.empty((0, 1))
    if x.dtype.kind not in "iufb" or x.dtype.kind == "b" or x.ndim < 2:
        raise ConfigError(
            f"{where}: expected images, or lists of numbers; got {brief(values[0])}. For texts write a table: text_table."
        )
    return (x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)) if images else x
