"""Everything FedGuard raises on purpose.

    FedGuardError                    exit 1
    ├── ConfigError                  exit 2   what was asked for cannot be run as written
    │   ├── UnknownName              exit 2   no such attack, key, metric ...; names the nearest one
    │   ├── PreconditionError        exit 2   a rule with more malicious clients than its proof allows
    │   ├── NotAllowed               exit 2   attack, rule, protocol or threat model exclude each other
    │   └── PluginError              exit 2   a plug-in that is broken, or a name taken twice
    ├── InputError                   exit 2   updates of the wrong shape or type, or with NaN in them
    ├── MissingExtra                 exit 2   an optional package is not installed
    ├── StoreError                   exit 2   the run folder cannot be read, written or locked
    ├── NotObservable                exit 1   an algorithm read what its threat model does not grant
    ├── ContractError                exit 1   an algorithm returned what its contract excludes
    └── StalledError                 exit 1   in a simulated training nobody does anything any more

A message says what was expected, what was given and what to do, in one line that a terminal may print.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxlevel = 3


class FedGuardError(Exception):
    """Base of every error that FedGuard raises on purpose.

    Its message is safe to print, whatever it quotes: control characters are escaped, and words of 300 characters or more are
    cut.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class ConfigError(FedGuardError):
    """What was asked for cannot be run as it is written."""

    exit_code = 2


class UnknownName(ConfigError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, what: str, got: object, known: Iterable[str], where: str = "", remedy: str = "") -> None:
        names = sorted(known)
        shown, got = repr(got) if isinstance(got, str) else brief(got), str(got) if isinstance(got, str) else ""
        self.got, self.known = got, names
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}unknown {what} {shown}. {_did_you_mean(got, names)}{remedy}")


class PreconditionError(ConfigError):
    """A rule was given more malicious clients than it withstands."""


class NotAllowed(ConfigError):
    """A combination in which one part needs to see what another part hides."""


class PluginError(ConfigError):
    """A plug-in that cannot be loaded, or a name that is taken twice."""


class InputError(FedGuardError):
    """Updates with the wrong shape or type, or with values that are not finite."""

    exit_code = 2


class MissingExtra(FedGuardError):
    """An optional package is needed and not installed."""

    exit_code = 2

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs {package}, which is not installed. Install it: pip install 'fedguard[{extra}]'."
        )


class StoreError(FedGuardError):
    """A run folder that cannot be read, written or locked."""

    exit_code = 2


class NotObservable(FedGuardError):
    """An algorithm read something that its threat model does not grant."""


class ContractError(FedGuardError):
    """An algorithm returned something that its contract excludes."""


class StalledError(FedGuardError):
    """In a simulated training no party computes or sends anything anymore before the end."""


class GuaranteeWarning(UserWarning):
    """A rule runs, but outside the guarantee of its source."""


def printable(text: str) -> str:
    """``text`` without control characters other than line breaks and tabs, and with very long words cut."""
    return re.sub(r"\S{300,}", lambda found: f"{found[0][:100]}... ({len(found[0])} characters)", escape_control(text))


def escape_control(text: str) -> str:
    """``text`` with each control character, other than line breaks and tabs, as an escape: ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def oneline(error: BaseException) -> str:
    """The message of an error as one line without a final period."""
    return " ".join(str(error).split()).rstrip(".")


def brief(value: Any) -> str:
    """``repr(value)`` for a message: long and deep values are cut, and the result is one line."""
    try:
        told = _REPR.repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        told = f"a number of {value.bit_length():,} bits" if isinstance(value, int) else "numbers too long to show"
    return " ".join(told.split()) if "\n" in told else told


def require(holds: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless ``holds``: the one-line parameter check of every algorithm."""
    if not holds:
        raise ConfigError(message)


def _did_you_mean(got: str, names: list[str]) -> str:
    near = [name for name in names if got and name.lower() == got.strip().lower()]
    near = near or difflib.get_close_matches(got, names, n=3, cutoff=0.5)
    if near:
        return "Did you mean " + " or ".join(repr(name) for name in near) + "?"
    if not names:
        return "None is known."
    more = f" and {len(names) - 20} more" if len(names) > 25 else ""
    return "Expected one of: " + ", ".join(names[:20] if more else names) + f"{more}."
