"""What a rule's code reaches for while it runs: the clock, the process, files, and other people's code.

None of this is a sandbox. It finds what a rule does openly; code that is out to hide can do so in ways that no watcher in the
same process sees.
"""

from __future__ import annotations

import builtins
import math
import os
import random
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
#: Functions in C whose answer depends on the moment or on the process, and what a rule learns from them
REVEALING = {
    **{f"time.{one}{unit}": "the clock" for one in _CLOCKS for unit in ("", "_ns")},
    **dict.fromkeys(["datetime.now", "datetime.utcnow", "datetime.today", "date.today"], "the clock"),
    **dict.fromkeys(["posix.urandom", "nt.urandom"], "the operating system's random numbers"),
    **dict.fromkeys(["posix.getpid", "posix.getppid", "_thread.get_ident"], "the number of the process"),
    **dict.fromkeys(["sys._getframe", "gc.get_objects", "gc.get_referrers"], "its callers' variables"),
}  # fmt: skip
#: Events of `sys.addaudithook` that reach outside of the process; they are refused
REACHING = (
    "os.fork", "os.forkpty", "os.exec", "os.system", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.kill", "os.remove",
    "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "socket.connect", "socket.bind", "socket.getaddrinfo",
    "urllib.Request",
)  # fmt: skip
#: Modules of others whose functions a rule has no business to replace
_OTHERS = (builtins, math, random, time, os, np, np.random, np.linalg, torch, torch.linalg, torch.nn.functional)


def _roots() -> list[str]:
    """One file of each folder that is installed as a package of FedGuard."""
    # Of FedGuard itself, two rooms above this one; its algorithms may lie elsewhere
    files = [
        str(Path(__file__).parents[1]),
        *(import_module(f"fedguard.{one}").__file__ for one in ("attacks", "defenses")),
    ]
    return [file for file in files if file is not None]


_LIBRARY = tuple(str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib"))


#: Classes of others whose methods a training calls
_CLASSES = (torch.Tensor, torch.nn.Module, torch.nn.Linear, torch.optim.Optimizer, torch.optim.SGD, torch.Generator)
#: Modules of Python's library that ask on their caller's behalf; others, such as logging, ask for themselves
ASKING = ("inspect", "datetime", "_pydatetime", "uuid", "secrets", "random", "traceback")
#: Where FedGuard's own code is
_OWN = tuple(str(Path(file).resolve().parent) + os.sep for file in _roots())


class ReachError(RuntimeError):
    """A rule reached outside of its process while it was checked."""


class Watch:
    """Watches the code in one folder.

    Args:
        folder: the folder of the submission; None to watch nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else str(folder.resolve())
        self._armed = False
        #: What was refused, in words, in order
        self.reached: list[str] = []
        if self._folder is not None:
            sys.addaudithook(self._audit)

    @contextmanager
    def refuse_reaching(self) -> Iterator[None]:
        """Within this block the submission's code may start no process, open no socket, and change no file."""
        before, self._armed = self._armed, True
        try:
            yield
        finally:
            self._armed = before

    def find_revealing_calls(self, run: Callable[[], Any]) -> list[str]:
        """What the submission's code asks for while ``run`` runs, of `REVEALING`: ``the clock (time.time)``."""
        found = dict[str, None]()

        def note_call(frame: FrameType, event: str, function: Any) -> None:
            if event != "c_call":
                return
            name = f"{getattr(function, '__module__', None) or ''}.{getattr(function, '__qualname__', '')}".lstrip(".")
            if name in REVEALING and self._is_ours(frame, ASKING):
                found[f"{REVEALING[name]} ({name})"] = None

        if self._folder is None:
            return []
        sys.setprofile(note_call)
        try:
            run()
        finally:
            sys.setprofile(None)
        return list(found)

    def _audit(self, event: str, arguments: Sequence[Any]) -> None:
        if not self._armed:
            return
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if (event in REACHING or writes) and self._is_ours(sys._getframe(1)):
            told = f"{event} {arguments[0]!r}" if arguments and isinstance(arguments[0], str | bytes) else event
            self.reached.append(told)
            raise ReachError(f"{told} is refused while a rule is checked")

    def _is_ours(self, frame: FrameType | None, through: Sequence[str] = ()) -> bool:
        """Whether the nearest caller outside of Python's own library is the submission.

        Args:
            through: the modules of the library that may be between; by default all of it.
        """
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(("<frozen", *_LIBRARY)) or "site-packages" in file:
                # A submission at the top of a checkout, or beside its .venv, has FedGuard and others below it
                apart = file.startswith(_OWN) or "site-packages" in file
                return self._folder is not None and file.startswith(self._folder + os.sep) and not apart
            if through and Path(file).stem not in through:
                return False
            frame = frame.f_back
        return False


class CodeSnapshot:
    """The functions and classes of FedGuard, and of the libraries below it, at one moment."""

    def __init__(self) -> None:
        modules = [one for name, one in sys.modules.items() if name.partition(".")[0] == "fedguard"]
        self._names = {
            name: value
            for module in (*modules, *_OTHERS)
            if isinstance(module, ModuleType)
            for name, value in _iterate_values(module)
        }
        for kind in _CLASSES:
            self._names |= {
                f"{kind.__module__}.{kind.__qualname__}.{name}": value for name, value in vars(kind).items()
            }

    def find_replaced(self) -> list[str]:
        """Names that mean something else by now."""
        now = CodeSnapshot()._names
        return sorted(name for name, value in self._names.items() if name in now and now[name] is not value)


def _iterate_values(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module, and what is in the classes that it defines."""
    for name, value in list(vars(module).items()):
        if callable(value) or (module not in _OTHERS and isinstance(value, int | float | str | tuple)):
            yield f"{module.__name__}.{name}", value
        if isinstance(value, type) and value.__module__ == module.__name__ and module not in _OTHERS:
            for inner, held in list(vars(value).items()):
                if callable(held) or isinstance(held, classmethod | staticmethod | property):
                    yield f"{module.__name__}.{name}.{inner}", held
