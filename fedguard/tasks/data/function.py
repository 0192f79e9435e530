"""Data that a function of the user's own brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError
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
    """

    name = "function"
    source = "your own"
    outside = True

    target: str
    value_range: tuple[float, float] | None = None
    test: float = 0.2

    def __post_init__(self) -> None:
        check_target(self.name, self.target)
        check_test(self.name, self.test)

    @property
    def modules(self) -> frozenset[str]:
        return super().modules | {self.target.partition(":")[0].partition(".")[0]}

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
            return assembled(self.target, Part(x, y), share=self.test, value_range=self.value_range)
        raise ConfigError(f"data {self.target}: expected a Dataset or arrays (x, y); got {type(given).__name__}.")
