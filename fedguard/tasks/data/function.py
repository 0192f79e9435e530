"""Data that a function of the user's own brings."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from fedguard.contracts import Data, Dataset
from fedguard.errors import ConfigError, require
from fedguard.tasks.data.assembly import Part, assembled


@dataclass(frozen=True, kw_only=True)
class Function(Data):
    """``module:function`` that takes nothing and returns a `fedguard.contracts.Dataset`, or ``(x, y)`` arrays.

    The module is found where Python finds modules, and beside the suite.

    Args:
        target: ``module:function``.
        value_range: smallest and largest value of an input, if arrays are returned; without one, columns are standardised.
        test: the share of the examples kept for testing, if arrays are returned.
    """

    name = "function"
    source = "your own"

    target: str
    value_range: tuple[float, float] | None = None
    test: float = 0.2

    def __post_init__(self) -> None:
        module, colon, function = self.target.partition(":")
        require(
            bool(module and colon and function), f"function: target: expected module:function; got {self.target!r}."
        )

    def load(self) -> Dataset:
        module, _, name = self.target.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"data {self.target}: cannot be found: {error}. It has to stand beside the suite, or be installed."
            ) from None
        given = function()
        if isinstance(given, Dataset):
            return given
        if isinstance(given, tuple) and len(given) == 2:
            import numpy as np

            return assembled(self.target, Part(*map(np.asarray, given)), share=self.test, value_range=self.value_range)
        raise ConfigError(f"data {self.target}: expected a Dataset or arrays (x, y); got {type(given).__name__}.")
