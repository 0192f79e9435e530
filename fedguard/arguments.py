"""Checks of single arguments of Python functions, which no schema validates: numbers, ranges, booleans, strings, paths."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Sequence
from typing import Any

from fedguard.errors import ConfigError, InputError, brief

#: The largest number of clients in a suite
MOST_CLIENTS = 10_000_000


def whole_number(value: Any, what: str, least: int, most: float = math.inf) -> int:
    """Check an integer of Python or numpy, from ``least`` to ``most``; 2.0 and True are refused.

    Raises:
        InputError: it is something else, or out of that range.
    """
    if is_whole(value) and least <= int(value) <= most:
        return int(value)
    words = f"{least} or more" if most == math.inf else f"from {least} to {most}"
    raise InputError(f"{what}: expected a whole number, {words}; got {brief(value)}.")


def malicious_clients(value: Any, what: str, least: int) -> int:
    """Check a number of malicious clients, ``least`` or more.

    Raises:
        InputError: it is something else.
    """
    if is_whole(value) and value < least:
        clients = f"at least {least} malicious client" if least else "0 or more malicious clients"
        raise InputError(f"{what}: expected {clients}; got {brief(value)}.")
    return whole_number(value, what, least, MOST_CLIENTS)


def at_least(least: int, value: Any, what: str, most: float = math.inf) -> None:
    """Check that a setting of a run is an integer, from ``least`` to ``most``.

    Raises:
        ConfigError: it is not.
    """
    if not is_whole(value) or value < least:
        wanted = f"at least {least}" if is_whole(value) else f"a whole number, {least} or more"
        raise ConfigError(f"{what}: expected {wanted}; got {brief(value)}.")
    if value > most:
        raise ConfigError(f"{what}: expected at most {most:,}; got {brief(value)}.")


def real_number(
    value: Any, what: str, least: float = -math.inf, most: float = math.inf, *, above: bool = False
) -> float:
    """Check a finite number from ``least`` to ``most``; with ``above``, ``least`` itself is refused.

    Raises:
        InputError: it is something else, or out of that range.
    """
    if is_real(value):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and (least < number if above else least <= number) and number <= most:
            return number
    low = "" if least == -math.inf else f", more than {least:g}" if above else f", {least:g} or more"
    high = "" if most == math.inf else f"{' and' * bool(low)} at most {most:g}"
    raise InputError(f"{what}: expected a finite number{low}{high}; got {brief(value)}.")


def read_range(value: Any, what: str = "value_range") -> tuple[float, float]:
    """Check ``(smallest, largest)``: two finite numbers, the first below the second.

    Raises:
        InputError: it is something else.
    """
    try:
        low, high = value
        read = real_number(low, what), real_number(high, what)
    except (TypeError, ValueError, InputError):
        read = (1.0, 0.0)
    if not read[0] < read[1]:
        raise InputError(f"{what}: expected (smallest, largest), two finite numbers; got {brief(value)}.")
    return read


def truth(value: Any, what: str) -> bool:
    """Check True or False; other values that Python treats as true or false are refused.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, bool) or type(value).__name__ == "bool":  # numpy's own
        return bool(value)
    raise InputError(f"{what}: expected True or False; got {brief(value)}.")


def words(value: Any, what: str) -> tuple[str, ...]:
    """Check a list of strings; a single string is refused, since it would be split into its letters.

    Raises:
        InputError: it is something else.
    """
    listed = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (None,)
    if all(isinstance(one, str) for one in listed):
        return listed
    raise InputError(f"{what}: expected a list of words; got {brief(value)}.")


def path_like(value: Any, what: str) -> None:
    """Check that a value is a path.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, str | os.PathLike) or "\0" in os.fsdecode(value):
        raise InputError(f"{what}: expected a path; got {brief(value)}.")


def of_kind(value: Any, what: str, kinds: type | tuple[type, ...], told: str) -> None:
    """Check that a value is of a kind, which ``told`` describes in words.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, kinds):
        raise InputError(f"{what}: expected {told}; got {brief(value)}.")


def whole_numbers(value: Any, what: str, least: int, most: float = math.inf) -> tuple[int, ...]:
    """Check a list of integers; see `whole_number`.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InputError(f"{what}: expected a list of whole numbers; got {brief(value)}.")
    return tuple(whole_number(one, f"{what}[{place}]", least, most) for place, one in enumerate(value))


def is_whole(value: Any) -> bool:
    """Whether it is an integer of Python or numpy; booleans are not."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def is_real(value: Any) -> bool:
    """Whether it is a real number of Python or numpy; booleans are not."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real)
