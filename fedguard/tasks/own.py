"""What stands in a module of the user's own: ``module:function``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fedguard.errors import ConfigError, brief, require

#: What code of the user's own may end with. One that leaves the process would end the run with it, and as if all were well.
FAILURES = (Exception, SystemExit)


def check_target(owner: str, target: str) -> None:
    """Raise `ConfigError` where ``target`` is not of the form ``module:function``."""
    parts = target.split(":")
    require(
        len(parts) == 2 and all(part.replace(".", "_").isidentifier() for part in parts),
        f"{owner}: target: expected module:function; got {target!r}.",
    )


def found(owner: str, target: str) -> Callable[..., Any]:
    """The function behind ``module:function``. Modules are looked for where Python does, and beside the suite.

    Raises:
        ConfigError: it cannot be found or imported, or is no function.
    """
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except FAILURES as error:  # whatever the user's module raises while it is imported
        raise ConfigError(
            f"{owner} {target}: cannot be found: {type(error).__name__}: {oneline(error)}. The module has to stand beside the "
            "suite, or be installed."
        ) from error
    file = getattr(module, "__file__", None) or name
    require(
        hasattr(module, attribute),
        f"{owner} {target}: cannot be found: {file} has no {attribute!r}. If that is another module than yours, which stands "
        "beside the suite, give yours another name.",
    )
    function = getattr(module, attribute)
    require(callable(function), f"{owner} {target}: expected a function; got {type(function).__name__}.")
    return function  # type: ignore[no-any-return]


def called(owner: str, target: str, *arguments: Any) -> Any:
    """What the function returns.

    Raises:
        ConfigError: it cannot be found, fails, or leaves the process.
    """
    function = found(owner, target)
    try:
        return function(*arguments)
    except FAILURES as error:
        asked = (
            f" It was called as {target.partition(':')[2]}({', '.join(map(brief, arguments))})." if arguments else ""
        )
        raise ConfigError(f"{owner} {target}: failed: {type(error).__name__}: {oneline(error)}.{asked}") from error


def oneline(error: BaseException) -> str:
    """What an error says, in one line without a full stop."""
    return " ".join(str(error).split()).rstrip(".")
