"""Data that a function of the user's own brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.errors import ConfigError, require
from fedguard.tasks.data.assembly import Part, assembled, check_test
from fedguard.tasks.data.checked import checked
from fedguard.tasks.own import called, check_target, oneline


@dataclass(frozen=True, kw_only=True)
class Function(Data):
    """``module:function`` that takes nothing and returns a `fedguard.contracts.Dataset`, or arrays ``(x, y)``.

    The module is found where Python finds modules, and beside the suite. The function has to return the same at each call:
    each process that trains calls it once.

    Args:
        target: ``module:function``.
        value_range: smallest and largest value of an input, if arrays are returned; without one, columns are standardised.
        test: the share of the examples kept for testing, if arrays are returned.
        public: that neither range, scale, vocabulary nor classes come from the examples returned. Nobody can check that.
    """

    name = "function"
    source = "your own"
    outside = True

    target: str
    value_range: tuple[float, float] | None = None
    test: float = 0.2
    public: bool = False

    def __post_init__(self) -> None:
        check_target(self.name, self.target)
        check_test(self.name, self.test)

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.target.partition(":")[0].partition(".")[0]}

    @property
    def preparation(self) -> Preparation:
        what = f"what {self.target} prepares its examples by"
        if self.public:
            return Preparation("given", what)
        return Preparation("records", what, "If it takes none of it from the examples, declare that: public: true.")

    def load(self) -> Dataset:
        given = called("data", self.target)
        if isinstance(given, Dataset):
            return checked(self.target, given)
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
            return assembled(self.target, Part(x, y), share=self.test, value_range=self.value_range)
        raise ConfigError(f"data {self.target}: expected a Dataset or arrays (x, y); got {type(given).__name__}.")
