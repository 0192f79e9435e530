"""State that plug-in modules keep from one trial to the next: a growing list, a counter, a random generator.

A trial that leaves state there would change later trials in the same process, and a seed would no longer determine its record.
Each value is digested before and after a trial, and differences are named. Caches of functions (`functools.cache`) are left
out, since they change nothing but time.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import random
import sys
from collections.abc import Iterator, Mapping, Set
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from fedguard.bench.running.code import modules_of
from fedguard.config import PlannedCell
from fedguard.contracts.user_function import FAILURES
from fedguard.modules import beside, load_module

#: How deep values are looked into, and at how many of them for one name.
DEEP, MANY = 8, 100_000

State = Mapping[str, str]


def snapshot_plugin_state(cell: PlannedCell) -> State:
    """Digests by ``module.name`` of all values in the modules of a cell's plug-ins and in the modules beside them."""
    names = modules_of(cell)
    for name in names:  # one that were imported in the middle of the trial could not be compared
        with contextlib.suppress(*FAILURES):
            load_module(name, cell.known.folder)
    return snapshot_modules(names)


def snapshot_modules(names: Set[str]) -> State:
    """Digests by ``module:name`` of all values in these top-level modules, if there are any, and in those beside them."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and (name.partition(".")[0] in names or (names and beside(name))):
            found |= _of_module(name, module)
    return found


def diff_plugin_state(before: State, after: State) -> list[str]:
    """The names with another value, and the new names in modules that were there before."""
    modules = {name.rpartition(":")[0] for name in before}
    return [
        name.replace(":", ".")
        for name, digest in after.items()
        if before.get(name) != digest and name.rpartition(":")[0] in modules
    ]


def _of_module(name: str, module: ModuleType) -> State:
    found = {f"{name}:": ""}  # the module is there, whatever is in it
    for key, value in list(vars(module).items()):
        if key.startswith("__") or isinstance(value, ModuleType) or _is_elsewheres(value, name):
            continue
        digest = hashlib.blake2b(digest_size=16)
        for part in _Walk(name.partition(".")[0]).parts(value):
            digest.update(part)
        found[f"{name}:{key}"] = digest.hexdigest()
    return found


def _is_elsewheres(value: Any, module: str) -> bool:
    """Whether a value is a class or function imported from another module."""
    return isinstance(value, type | FunctionType) and value.__module__ != module


class _Walk:
    """One traversal of a value, which visits no object twice.

    Args:
        package: the package of the classes and functions that are looked into.
    """

    def __init__(self, package: str) -> None:
        self._package, self._seen = package, set[int]()
        self._alive: list[Any] = []  # so that no id is given anew
        self._left = MANY

    def parts(self, value: Any, deep: int = 0) -> Iterator[bytes]:
        yield type(value).__qualname__.encode()
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | bytearray):
            yield repr(value).encode()
            return
        self._left -= 1
        if id(value) in self._seen or deep > DEEP or self._left < 0:
            return
        self._seen.add(id(value))
        self._alive.append(value)
        if (array := _array(value)) is not None:
            yield str((array.dtype, array.shape)).encode()
            yield array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
        elif (state := _generator(value)) is not None:
            yield from self.parts(state, deep + 1)
        elif isinstance(value, Set):
            each = (b"".join(_Walk(self._package).parts(one, deep + 1)) for one in value)
            yield from sorted(each)
        elif isinstance(value, Mapping):
            for key, held in list(value.items()):
                yield from self.parts(key, deep + 1)
                yield from self.parts(held, deep + 1)
        elif isinstance(value, list | tuple) or type(value).__name__ == "deque":
            for one in list(value):
                yield from self.parts(one, deep + 1)
        elif type(value).__module__ == "itertools":
            yield repr(value).encode()  # count(7): how far it is
        else:
            for name, held in sorted(self._within(value), key=lambda item: item[0]):
                yield name.encode()
                yield from self.parts(held, deep + 1)

    def _within(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The contents of a class, a function or another object of the package."""
        if isinstance(value, FunctionType):
            if value.__module__.partition(".")[0] == self._package:
                yield from vars(value).items()
                yield "defaults", (value.__defaults__, value.__kwdefaults__)
                for number, cell in enumerate(value.__closure__ or ()):
                    with contextlib.suppress(ValueError):  # an empty one
                        yield f"closure {number}", cell.cell_contents
        elif isinstance(value, type):
            if value.__module__.partition(".")[0] == self._package:
                own = (item for item in vars(value).items() if not item[0].startswith(("__", "_abc_")))
                yield from ((name, inspect.unwrap(held) if callable(held) else held) for name, held in own)
        elif isinstance(value, staticmethod | classmethod):
            yield "function", value.__func__
        elif isinstance(value, property):
            yield "function", value.fget
        elif not callable(getattr(value, "cache_info", None)) and not isinstance(value, ModuleType):
            yield from getattr(value, "__dict__", {}).items()
            for name in getattr(type(value), "__slots__", ()):
                if isinstance(name, str) and hasattr(value, name):
                    yield name, getattr(value, name)


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, torch.Tensor):
        with contextlib.suppress(RuntimeError, TypeError):
            return value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy()
        return np.asarray(repr(value))
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _generator(value: Any) -> Any:
    """The state of a generator of random numbers; None of anything else."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.BitGenerator):
        return value.state
    if isinstance(value, np.random.RandomState):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    return value.get_state() if isinstance(value, torch.Generator) else None
