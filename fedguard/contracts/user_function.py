"""What stands in a module of the user's own: ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedguard.errors import ConfigError, brief, oneline, require
from fedguard.modules import importable, load_module

#: What code of the user's own may end with. One that leaves the process would end the run with it, and as if all were well.
FAILURES = (Exception, SystemExit)


@dataclass(frozen=True)
class UserFunction:
    """A function of the user's own.

    Attributes:
        text: ``module:function``; for a model a class will do.
        folder: where the module is looked for, beside where Python looks: the suite's folder.
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
            owner: of it, for messages: ``data`` or ``model``.

        Raises:
            ConfigError: it cannot be found or imported, or is no function.
        """
        name, attribute = self.module, self.text.partition(":")[2]
        try:
            module = load_module(name, self.folder)
        except FAILURES as error:  # whatever the user's module raises while it is imported
            raise ConfigError(
                f"{owner} {self}: cannot be found: {type(error).__name__}: {oneline(error)}. The module has to stand "
                "beside the suite, or be installed."
            ) from error
        file = getattr(module, "__file__", None) or name
        require(
            hasattr(module, attribute),
            f"{owner} {self}: cannot be found: {file} has no {attribute!r}. If that is another module than yours, which stands "
            "beside the suite, give yours another name.",
        )
        function = getattr(module, attribute)
        require(callable(function), f"{owner} {self}: expected a function; got {type(function).__name__}.")
        return function  # type: ignore[no-any-return]

    def call_function(self, owner: str, *arguments: Any) -> Any:
        """What the function returns.

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
