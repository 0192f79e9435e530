"""Traces of a run: texts, memory, and the byte strings in them that may be secrets."""

from __future__ import annotations

import ast
import base64
import logging
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import Enum
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_LITERAL = re.compile(r"""\bb(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\")""")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){32,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43,}={0,2}")
_NUMBER = re.compile(r"\d{60,}")
_NUMBERS = re.compile(r"\d+(?:,\s*\d+){7,}")


class LogCollector(logging.Handler):
    """Context that collects all log messages, of any level and logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))

    def __enter__(self) -> LogCollector:
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        logging.getLogger().setLevel(self._level)


def render_object(thing: object) -> str:
    """An object as logs, debuggers and messages show it."""
    return "\n".join(dict.fromkeys([repr(thing), str(thing), f"{thing}"]))


def render_error(error: BaseException) -> str:
    """An error as in a crash report: with its arguments, the local variables of every frame, and the errors behind it."""
    inner = error.__traceback__
    for _ in range(2):  # the frames of who caught it and of who asked are not the client's
        inner = inner.tb_next if inner else None
    report = traceback.TracebackException(type(error), error, inner, capture_locals=True)
    lines = [render_object(error), repr(error.args), repr(vars(error)), *report.format()]
    if error.__context__ is not None:  # also where it is suppressed
        behind = traceback.TracebackException.from_exception(error.__context__, capture_locals=True)
        lines += [render_object(error.__context__), *behind.format()]
    return "\n".join(lines)


def blobs(text: str) -> Iterator[bytes]:
    """Byte strings that a text may contain, as literals, hex, base64, a long number or a row of numbers."""
    for literal in _LITERAL.findall(text):
        with suppress(SyntaxError, ValueError):  # of what only looks like one
            yield ast.literal_eval(literal)
    for run in _HEX.findall(text):
        yield bytes.fromhex(run)
    for run in _BASE64.findall(text):
        digits = run.rstrip("=").replace("+", "-").replace("/", "_")
        # No base64 text has such a length
        if len(digits) % 4 != 1:
            yield base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    for number in _NUMBER.findall(text):
        yield from _of_number(int(number))
    for row in numbers(text):
        if max(row) < 256:
            yield bytes(row)


def numbers(text: str) -> Iterator[list[int]]:
    """Rows of eight or more integers."""
    for row in _NUMBERS.findall(text):
        yield [int(number) for number in row.split(",")]


def reachable(root: object) -> Iterator[bytes]:
    """Every byte string, array, large number and private key that can be reached from an object by its attributes."""
    seen: set[int] = set()
    kept: list[object] = [root]  # what is made on the way stays alive, so that no id stands for two objects
    for thing in kept:
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray | memoryview | np.ndarray):
            yield bytes(thing)
        elif isinstance(thing, X25519PrivateKey | Ed25519PrivateKey):
            yield thing.private_bytes_raw()
        elif isinstance(thing, int) and not isinstance(thing, Enum):
            yield from _of_number(thing)
        else:
            kept.extend(_inside(thing))


def _inside(thing: Any) -> Sequence[object]:
    """The objects that an object refers to."""
    if isinstance(thing, str | type | ModuleType | Enum):
        return []
    if isinstance(thing, Mapping | Sequence | AbstractSet):
        return [*thing, *(thing.values() if isinstance(thing, Mapping) else ())]
    if isinstance(thing, partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [*cells, thing.__defaults__, thing.__kwdefaults__]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name, None) for name in slots)]


def _of_number(number: int) -> list[bytes]:
    """A number of the size of a secret, in both byte orders."""
    # A uniform secret of 256 bits is below 2^200 with a chance of 2^-56; shares have some bits more than a secret
    if not 2**200 <= number < 2**264:
        return []
    size = max(32, (number.bit_length() + 7) // 8)
    return [number.to_bytes(size, "little"), number.to_bytes(size, "big")]
