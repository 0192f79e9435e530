"""Modules of the user's own, which stand beside a suite: found there without a lasting change to where Python looks."""

from __future__ import annotations

import contextlib
import importlib
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

#: Under this name a module from a suite's folder keeps the folder, and what its file was like when it was imported.
_FROM = "__imported_from__"
#: The names that were ever imported so: a process holds thousands of modules, and few of them are of a suite's folder.
_NAMES: set[str] = set()


def load_module(name: str, folder: Path | None) -> ModuleType:
    """The module ``name``, which is installed or stands in ``folder``; an installed one goes before.

    Python keeps one module for each name. Two folders may hold modules of one name, and a file may change: so those from a
    suite's folder are let go of when another suite has one of that name, or when one of them has changed. Who holds their
    classes and functions keeps these.
    """
    if folder is None:
        return importlib.import_module(name)
    folder = folder.resolve()
    _forget_stale(folder)
    before = set(sys.modules)
    with importable(folder):
        try:
            return importlib.import_module(name)
        finally:
            for one in set(sys.modules) - before:
                file = _file(sys.modules[one])
                if file is not None and file.is_relative_to(folder):
                    vars(sys.modules[one])[_FROM] = (folder, _state(file))
                    _NAMES.add(one)


def folder_of_script() -> Path:
    """Where modules of somebody stand who calls FedGuard from Python: beside the script, or in the working directory."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path.cwd() if file is None else Path(file).resolve().parent
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "scripts")}
    return Path.cwd() if folder in installed or installed & set(folder.parents) else folder


def beside(name: str) -> bool:
    """Whether the module of this name was imported from a suite's folder."""
    return name in _NAMES and _FROM in getattr(sys.modules.get(name), "__dict__", {})


@contextlib.contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Let modules in ``folder`` be imported for as long as this lasts.

    Python tells compiled code from its source by the second and the size. A file that is changed twice in a second would keep
    its old code, beside the digest of the new one: so none is compiled to disk here.
    """
    added = None if folder is None or str(folder) in sys.path else str(folder)
    if added is not None:
        sys.path.append(added)
        importlib.invalidate_caches()
    compiles, sys.dont_write_bytecode = sys.dont_write_bytecode, sys.dont_write_bytecode or folder is not None
    try:
        yield
    finally:
        sys.dont_write_bytecode = compiles
        if added is not None and added in sys.path:
            sys.path.remove(added)


def _forget_stale(folder: Path) -> None:
    ours = {name: sys.modules[name] for name in _NAMES if _FROM in getattr(sys.modules.get(name), "__dict__", {})}
    stale = set()
    for name, module in ours.items():
        place, state = vars(module)[_FROM]
        elsewhere = place != folder and PathFinder.find_spec(name.partition(".")[0], [str(folder)]) is not None
        if elsewhere or state != _state(_file(module)):
            stale.add(place)
    for name, module in ours.items():
        if vars(module)[_FROM][0] in stale:
            del sys.modules[name]


def _file(module: ModuleType) -> Path | None:
    file = getattr(module, "__dict__", {}).get("__file__")
    return Path(file).resolve() if isinstance(file, str) else None


def _state(file: Path | None) -> tuple[int, int] | None:
    """When the file was changed, and its size; None where it is gone."""
    if file is None or not file.is_file():
        return None
    found = file.stat()
    return found.st_mtime_ns, found.st_size
