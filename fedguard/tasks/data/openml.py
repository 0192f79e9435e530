"""Data sets of openml.org, fetched once and kept by scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.contracts import Data, Dataset, PositiveFloat, PositiveInt, Preparation, ProperFraction
from fedguard.errors import ConfigError, MissingExtra, oneline, require
from fedguard.tasks.data.assembly import (
    Classes,
    RawExamples,
    assemble_dataset,
    check_classes,
    describe_preparation,
    pixels,
)


@dataclass(frozen=True, kw_only=True)
class OpenML(Data):
    """A data set of openml.org by name: ``openml:mnist_784``, or with ``shape: [1, 28, 28]`` where images are needed.

    It is fetched over the network the first time, and then kept where scikit-learn keeps its data (``SCIKIT_LEARN_DATA``).
    A category among the features becomes its number.

    Args:
        dataset: its name there.
        version: which of its versions.
        shape: of an input, for images: then values are pixels. Without one, columns are standardized.
        largest: what a pixel may be, by which all are divided.
        classes: their number, or their names; without them, as many as there are labels.
        test: the share of the examples kept for testing.
    """

    name = "openml"
    source = "Vanschoren et al., OpenML: Networked Science in Machine Learning, SIGKDD Explorations 2013"

    dataset: str
    version: PositiveInt = 1
    shape: tuple[int, ...] | None = None
    largest: PositiveFloat = 255.0
    classes: Classes | None = None
    test: ProperFraction = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)

    @property
    def preparation(self) -> Preparation:
        if self.shape is None:
            remedy = "Keep the data in an .npz file: npz takes value_range and classes, or public examples."
            return Preparation("records", "scale, range and classes", remedy)
        pixel_range = 0.0, 1.0
        return describe_preparation(pixel_range, self.classes)

    def load(self) -> Dataset:
        where = f"openml:{self.dataset}"
        x, y = self._fetch_arrays(where)
        if self.shape is None:
            return assemble_dataset(where, RawExamples(x, y), share=self.test, classes=self.classes)
        (images,) = pixels(where, self.largest, x)
        return assemble_dataset(
            where,
            RawExamples(images, y),
            share=self.test,
            value_range=(0.0, 1.0),
            classes=self.classes,
            shape=self.shape,
        )

    def _fetch_arrays(self, where: str) -> tuple[NDArray[Any], NDArray[Any]]:
        from sklearn.datasets import fetch_openml

        try:
            bunch = fetch_openml(name=self.dataset, version=self.version, as_frame=False)
        except ImportError:
            raise MissingExtra("openml", "pandas", "data") from None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where}: cannot be fetched: {oneline(error)}. The network is needed once; what was fetched is kept."
            ) from None
        x = bunch.data if isinstance(bunch.data, np.ndarray) else bunch.data.toarray()  # sparse
        require(bunch.target is not None, f"{where}: expected a data set with a column to tell; this one names none.")
        return x, bunch.target.astype(str) if bunch.target.dtype == object else bunch.target
