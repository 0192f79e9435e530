"""Data that a function of the user's own brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation, ProperFraction
from fedguard.contracts.user_function import UserFunction
from fedguard.errors import ConfigError, oneline, require
from fedguard.tasks.data.assembly import Classes, Part, assembled, check_classes
from fedguard.tasks.data.checked import checked


@dataclass(frozen=True, kw_only=True)
class Function(Data):
    """``module:function`` that takes nothing and returns a `fedguard.contracts.Dataset`, or arrays ``(x, y)``.

    The module is found where Python finds modules, and beside the suite. The function has to return the same at each call:
    each process that trains calls it once.

    Args:
        target: ``module:function``.
        value_range: smallest and largest value of an input, if arrays are returned; without one, columns are standardised.
        classes: their number, or their names, if arrays are returned; without them, as many as there are labels.
        test: the share of the examples kept for testing, if arrays are returned.
        public: that neither range, scale, vocabulary nor classes come from the examples returned. Nobody can check that.
    """

    name = "function"
    source = "your own"
    outside = True

    target: UserFunction
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
        given = self.target.called("data")
        if isinstance(given, Dataset):
            return checked(str(self.target), given, every_class=not self.public)
        if isinstance(given, tuple) and len(given) == 2:
            try:
                x, y = map(np.asarray, given)
            except (
                Exception
            ) as error:  # lists of different lengths, tensors on another device, whatever has an __array__
                raise ConfigError(f"data {self.target}: expected arrays (x, y): {oneline(error)}.") from None
            require(
                not self.public or self.value_range is not None,
                f"data {self.target}: public: arrays without a value_range are standardised by themselves. Give value_range.",
            )
            require(
                not self.public or self.classes is not None,
                f"data {self.target}: public: without classes the labels of arrays are counted. Give classes.",
            )
            return assembled(
                str(self.target), Part(x, y), share=self.test, value_range=self.value_range, classes=self.classes
            )
        raise ConfigError(f"data {self.target}: expected a Dataset or arrays (x, y); got {type(given).__name__}.")
