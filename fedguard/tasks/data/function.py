"""Data that a function of the user's own brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, InputError, oneline, require
from fedguard.reading import read_array
from fedguard.tasks.data.assembly import Classes, RawExamples, assemble_dataset, check_classes
from fedguard.tasks.data.dataset_checks import check_dataset


@dataclass(frozen=True, kw_only=True)
class Function(Data):
    """``module:function`` that takes nothing and returns a `fedguard.contracts.Dataset`, or arrays ``(x, y)``.

    The module is found where Python finds modules, and beside the suite. The function has to return the same at each call:
    each process that trains calls it once.

    Args:
        target: ``module:function``.
        shape: of an input, such as ``[1, 28, 28]``: flat arrays are folded into it, and it says that an image of few pixels has
            its channels first.
        value_range: smallest and largest value of an input, if arrays are returned; without one, columns are standardized.
        classes: their number, or their names, if arrays are returned; without them, as many as there are labels.
        test: the share of the examples kept for testing, if arrays are returned.
        public: that neither range, scale, vocabulary nor classes come from the examples returned. Nobody can check that.
    """

    name = "function"
    source = "your own"
    outside = True

    target: UserFunction
    shape: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None
    classes: Classes | None = None
    test: ProperFraction = 0.2
    public: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.name, self.classes)

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.target.module.partition(".")[0]}

    @property
    def preparation(self) -> Preparation:
        what = f"what {self.target} prepares its examples by"
        if self.public:
            return Preparation("given", f"{what} (so the suite declares, and nobody can check it)")
        return Preparation("records", what, "If it takes none of it from the examples, declare that: public: true.")

    def load(self) -> Dataset:
        given = self.target.call_function("data")
        if isinstance(given, Dataset):
            return check_dataset(str(self.target), given, every_class=not self.public, shape=self.shape)
        if isinstance(given, tuple) and len(given) == 2:
            require(
                not np.ma.is_masked(given[1]),
                f"data {self.target}: expected a label for each example; some are masked.",
            )
            try:
                x, y = read_array(given[0], "x").numpy(force=True), np.asarray(given[1])
            except InputError as error:
                raise ConfigError(f"data {self.target}: expected arrays (x, y): {oneline(error)}") from None
            except Exception as error:  # tensors on another device, whatever has an __array__
                raise ConfigError(f"data {self.target}: expected arrays (x, y): {oneline(error)}.") from None
            require(
                not self.public or self.value_range is not None,
                f"data {self.target}: public: arrays without a value_range are standardised by themselves. Give value_range.",
            )
            require(
                not self.public or self.classes is not None,
                f"data {self.target}: public: without classes the labels of arrays are counted. Give classes.",
            )
            return assemble_dataset(
                str(self.target),
                RawExamples(x, y),
                share=self.test,
                value_range=self.value_range,
                classes=self.classes,
                shape=self.shape,
            )
        raise ConfigError(f"data {self.target}: expected a Dataset or arrays (x, y); got {type(given).__name__}.")
