"""The user's own modules beside a suite, imported without a lasting change to Python's path."""

from __future__ import annotations

import contextlib
import importlib
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

#: Attribute under which a module from a suite's folder keeps this folder, and the state of its file when it was imported
_FROM = "__imported_from__"
#: Names ever imported this way; searching all modules of a process, which are thousands, would be slow
_NAMES: set[str] = set()


def load_module(name: str, folder: Path | None) -> ModuleType:
    """Import the module ``name``, which is installed or is in ``folder``; an installed one takes precedence.

    Python keeps one module for each name. Two folders may hold modules of one name, and a file may change. So modules from a
    suite's folder are forgotten if another suite has a module of the same name, or if one of them has changed. Objects that
    hold their classes and functions keep them.
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
    """The folder of the caller's modules in Python: the folder of the script, or the working directory."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path.cwd() if file is None else Path(file).resolve().parent
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "scripts")}
    return Path.cwd() if folder in installed or installed & set(folder.parents) else folder


def beside(name: str) -> bool:
    """Whether the module of this name was imported from a suite's folder."""
    return name in _NAMES and _FROM in getattr(sys.modules.get(name), "__dict__", {})


@contextlib.contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Let modules in ``folder`` be imported within this context.

    Python compares compiled code with its source by modification time in seconds and by size. A file that is changed twice in a
    second would keep its old code under the digest of the new one. So no compiled code is written to disk here.
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
    """Modification time and size of a file; None if it is gone."""
    if file is None or not file.is_file():
        return None
    found = file.stat()
    return found.st_mtime_ns, found.st_size
