"""Reads the untrusted files of a store, which other programs, full disks and other people may have changed.

Nothing is executed, changed or waited for: only ordinary files are opened, files that are too large are not read, content of
another form is not used, and control characters are escaped. Readers report a damaged file with the reason, and go on with the
others.
"""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from fedguard.errors import escape_control, printable

T = TypeVar("T")

#: Largest size of a file, in bytes.
MOST = 64 * 2**20

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class DamagedFile(NamedTuple):
    """A file of a store that cannot be read, and why."""

    path: Path
    why: str

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.why}")


def content(path: Path, most: int = MOST) -> bytes:
    """The bytes of a file.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: it is no ordinary file, too large, or cannot be read; in words.
    """
    try:
        known = path.stat()
        if not stat.S_ISREG(known.st_mode):
            raise ValueError(f"expected a file; it is {_KINDS.get(stat.S_IFMT(known.st_mode), 'something else')}")
        if known.st_size > most:
            raise ValueError(f"expected at most {most:,} bytes; it has {known.st_size:,}")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise ValueError("expected a file; it is a link that leads nowhere") from None
        raise
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


def parse_json(form: TypeAdapter[T], text: bytes) -> T:
    """JSON of a given form, with names and texts that a terminal may print.

    Raises:
        ValueError: it is not of this form; where, and what was expected.
    """
    try:
        found = form.validate_json(text)
    except ValidationError as error:
        raise ValueError(describe_error(error)) from None
    return escape_tree(found) if b"\\" in text or b"\x7f" in text or not text.isascii() else found


def json_of(text: bytes) -> Any:
    """JSON of any form, with names and texts that a terminal may print.

    Raises:
        ValueError: it is no JSON, nested too deep, or has numbers that are not finite.
    """
    found = escape_tree(from_json(text, allow_inf_nan=False))
    _require_finite(found)
    return found


def describe_error(error: ValidationError) -> str:
    """The first thing that is wrong: ``damaged at result.curve: Field required``."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place, said = first["loc"], first["msg"].removeprefix("Value error, ")
    if place[-1:] == ("schema",) and first["type"] == "literal_error":
        return "written by another version of FedGuard"
    if place[:1] in (("ok",), ("refused",), ("failed",)):  # by which of its forms a record was read
        place = place[1:]
    if not place:
        return f"damaged: {said}"
    return f"damaged at {'.'.join(str(part)[:80] for part in place[:12])}: {said}"


def escape_tree(value: T) -> T:
    """A tree of dicts and lists whose texts, keys included, a terminal or a picture may show."""
    return cast(T, _escape_value(value))


def _escape_value(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else escape_control(value)
    if isinstance(value, dict):
        return {_escape_value(key): _escape_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_value(one) for one in value]
    return value


def _require_finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("damaged: expected finite numbers")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_finite(one)
