"""A function in the user's own module: ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedguard.errors import ConfigError, brief, oneline, require
from fedguard.modules import importable, load_module

#: How user code may fail. SystemExit would end the run, and with an exit code as if it had succeeded
FAILURES = (Exception, SystemExit)


@dataclass(frozen=True)
class UserFunction:
    """A function in the user's own module.

    Attributes:
        text: ``module:function``; for a model a class works too.
        folder: folder in which the module is looked up, in addition to Python's path: the suite's folder.
    """

    text: str
    folder: Path | None = None

    def __post_init__(self) -> None:
        parts = self.text.split(":")
        require(
            len(parts) == 2 and all(part.replace(".", "_").isidentifier() for part in parts),
            f"expected module:function; got {self.text!r}.",
        )

    def __str__(self) -> str:
        return self.text

    @property
    def module(self) -> str:
        return self.text.partition(":")[0]

    def load_function(self, owner: str) -> Callable[..., Any]:
        """The function.

        Args:
            owner: kind of the algorithm, for messages: ``data`` or ``model``.

        Raises:
            ConfigError: it cannot be found or imported, or is not a function.
        """
        name, attribute = self.module, self.text.partition(":")[2]
        try:
            module = load_module(name, self.folder)
        except FAILURES as error:  # whatever the user's module raises while it is imported
            raise ConfigError(
                f"{owner} {self}: cannot be found: {type(error).__name__}: {oneline(error)}. The module has to be "
                "beside the suite, or be installed."
            ) from error
        file = getattr(module, "__file__", None) or name
        require(
            hasattr(module, attribute),
            f"{owner} {self}: cannot be found: {file} has no {attribute!r}. If that is another module than yours, which is "
            "beside the suite, give yours another name.",
        )
        function = getattr(module, attribute)
        require(callable(function), f"{owner} {self}: expected a function; got {type(function).__name__}.")
        return function  # type: ignore[no-any-return]

    def call_function(self, owner: str, *arguments: Any) -> Any:
        """The result of the function.

        Raises:
            ConfigError: it cannot be found, fails, or leaves the process.
        """
        function = self.load_function(owner)
        try:
            with importable(self.folder):
                return function(*arguments)
        except FAILURES as error:
            said = f"{self.text.partition(':')[2]}({', '.join(map(brief, arguments))})"
            asked = f" It was called as {said}." if arguments else ""
            raise ConfigError(f"{owner} {self}: failed: {type(error).__name__}: {oneline(error)}.{asked}") from error
