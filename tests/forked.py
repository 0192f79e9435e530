"""Commands as a person types them, in processes that are forked from the tests' own, so that each starts in milliseconds.

All but the start is as it would be: a folder, an environment, signals and modules of their own, streams and an exit code. What the
start itself does - which libraries it loads, which files it reads - needs a process that starts from nothing.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import fedguard.api
from fedguard import cli
from fedguard.commands.options import console

#: Below these folders stand modules that each process could import.
_LASTING = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)})
#: What Python says nothing of unless it is asked to.
_QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def fedguard(*arguments: str, cwd: Path, columns: int = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of FedGuard."""
    return called("fedguard", *arguments, cwd=cwd, columns=columns, **environment)


def called(
    program: str, *arguments: str, cwd: Path, columns: int = 100, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``fedguard``, ``pytest`` or ``python``. Variables of this run of pytest are not handed on."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "FEDGUARD_"))}
    own |= {"COLUMNS": str(columns), "NO_COLOR": "1", **environment}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        with warnings.catch_warnings(
            action="ignore", category=DeprecationWarning
        ):  # of forks beside threads, which do nothing
            child = os.fork()
        if child == 0:
            _become([program, *arguments], cwd, own, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), out.read(), err.read())


def _become(command: list[str], cwd: Path, environment: dict[str, str], out: int, err: int) -> NoReturn:
    """Be the process that a command would start, to its end."""
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8")  # noqa: SIM115
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # it stands in the environment, too
        sys.argv, sys.path = command, [str(cwd), *sys.path]
        _forget_what_tests_brought()
        warnings.resetwarnings()
        for one in _QUIET:
            warnings.simplefilter("ignore", one)
        console.__init__()  # type: ignore[misc]  # it read the width when it was made
        code = _ended(_PROGRAMS[command[0]])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _forget_what_tests_brought() -> None:
    """Let go of modules that neither are installed nor stand in this checkout: plug-ins that earlier tests wrote and imported."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and Path(file).is_absolute() and not file.startswith(_LASTING):
            del sys.modules[name]


def _ended(program: Callable[[], int]) -> int:
    try:
        return program()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _python() -> int:
    """``python FILE`` or ``python -m MODULE``."""
    if sys.argv[1] == "-m":
        runpy.run_module(sys.argv[2], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[1], run_name="__main__")
    return 0


_PROGRAMS: dict[str, Callable[[], int]] = {"fedguard": cli.main, "pytest": pytest.console_main, "python": _python}
