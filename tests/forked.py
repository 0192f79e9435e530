"""Commands as a person types them, in processes that are forked from the tests' own, so that each starts in milliseconds.

All but the start is as it would be: a folder, an environment, signals and modules of their own, streams and an exit code. What the
start itself does - which libraries it loads, which files it reads - needs a process that starts from nothing.
"""

from __future__ import annotations

import collections
import importlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
import typer.main

import fedguard.api
from fedguard import cli
from fedguard.bench.conformance import process
from fedguard.bench.running import apps, worker
from fedguard.commands.options import console
from fedguard.registry import load_registry

#: Below these folders stand modules that each process could import.
_LASTING = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)})
#: What Python says nothing of unless it is asked to.
_QUIET = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


def fedguard(*arguments: str, cwd: Path, columns: int = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of FedGuard."""
    return called("fedguard", *arguments, cwd=cwd, columns=columns, **environment)


def called(
    program: str, *arguments: str, cwd: Path, columns: int = 100, site: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``fedguard``, ``pytest`` or ``python``. Variables of this run of pytest are not handed on.

    With ``site``, a folder of what is installed besides, ``fedguard`` is imported anew, and from there if it stands there.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "FEDGUARD_"))}
    own |= {"COLUMNS": str(columns), "NO_COLOR": "1", **environment}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        code = done([program, *arguments], cwd, own, out.fileno(), err.fileno(), site)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def done(
    command: list[str], cwd: Path, environment: dict[str, str], out: int, err: int, site: Path | None = None
) -> int:
    """Run a program that writes to files with these numbers, to its end: its exit code.

    A report starts from nothing: what draws it has threads, which are not there in a copy of a process that has drawn.
    """
    if command[:2] == ["fedguard", "report"] and site is None:
        start = [sys.executable, "-m", "fedguard.cli", *command[1:]]
        return subprocess.run(start, cwd=cwd, env=environment, stdout=out, stderr=err).returncode
    _warm()
    child = _fork()
    if child == 0:
        _become(command, cwd, environment, out, err, site)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class Forked:
    """A process that goes on beside the tests, in the place of `subprocess.Popen`: a command of FedGuard, a script, or a worker."""

    def __init__(
        self,
        command: list[str],
        *,
        env: Mapping[str, str] = os.environ,
        start_new_session: bool = False,
        deaf: bool = False,
        stderr: IO[bytes] | int = subprocess.PIPE,
        **_: Any,  # text and pipes, as ever
    ) -> None:
        (stdin, into), (out, stdout), (err, errors) = os.pipe(), os.pipe(), os.pipe()
        arguments = command[1:] if command[0] in _PROGRAMS else command[command.index("-m") + 1 :]
        program = command[0] if command[0] in _PROGRAMS else _PROGRAMS_BY_MODULE[arguments[0]]
        self.returncode: int | None = None
        _warm()
        self.pid = _fork()
        if self.pid == 0:
            os.dup2(stdin, 0)
            os.dup2(stdout, 1)
            os.dup2(errors if isinstance(stderr, int) else stderr.fileno(), 2)
            _let_go_of_files()
            sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
            if deaf:  # to Ctrl-C, as what a shell starts in the background
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            if start_new_session:
                os.setsid()
            _become([program, *arguments], Path.cwd(), dict(env), 1, 2)
        for one in (stdin, stdout, errors):
            os.close(one)
        self.stdin, self.stdout, self.stderr = self._opened(into, out, err)

    def _opened(self, into: int, out: int, err: int) -> tuple[IO[Any], IO[Any], IO[Any]]:
        return (
            os.fdopen(into, "w", encoding="utf-8"),
            os.fdopen(out, encoding="utf-8"),
            os.fdopen(err, encoding="utf-8"),
        )

    def poll(self) -> int | None:
        if self.returncode is None:
            child, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if child else None
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            assert time.monotonic() < deadline, "it has not ended"
            time.sleep(0.005)
        return code

    def last_words(self) -> str:
        """What it has written to standard error, once it has ended; and let go of its pipes."""
        with self.stdin, self.stdout, self.stderr:
            return self.stderr.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedBytes(Forked):
    """One whose streams are of bytes, and nobody listens to its standard error."""

    def _opened(self, into: int, out: int, err: int) -> tuple[IO[Any], IO[Any], IO[Any]]:
        return os.fdopen(into, "wb"), os.fdopen(out, "rb"), os.fdopen(err, "rb")

    def communicate(self) -> tuple[bytes, bytes]:
        self.wait()
        with self.stdin, self.stdout, self.stderr:
            return self.stdout.read(), self.stderr.read()


class ForkedNode(Forked):
    """One that nobody listens to."""

    def wait(self, timeout: float = 600) -> int:
        with self.stdin, self.stdout, self.stderr:
            return super().wait(timeout)


def _let_go_of_files() -> None:
    """Hold no end of a pipe but one's own. Numbers of files stay taken, since objects of the tests will close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for one in Path("/dev/fd").iterdir():
        if int(one.name) > 2:
            os.dup2(nothing, int(one.name))


@cache
def _warm() -> None:
    """Load what most commands load, once and not in each process."""
    for name in ("explain.catalogue", "gate.work", "pages.overview", "running.check", "running.procedures"):
        importlib.import_module(f"fedguard.bench.{name}")
    collections.deque(load_registry().classes(), 0)
    importlib.import_module("sklearn.datasets")
    _built()


@cache
def _built() -> Any:
    """The command ``fedguard`` with all that stands below it, which takes longer to build than most take to answer."""
    return typer.main.get_command(cli.app)


def _fork() -> int:
    with warnings.catch_warnings(
        action="ignore", category=DeprecationWarning
    ):  # of forks beside threads, which do nothing
        return os.fork()


def _become(
    command: list[str], cwd: Path, environment: dict[str, str], out: int, err: int, site: Path | None = None
) -> NoReturn:
    """Be the process that a command would start, to its end."""
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (os.fdopen(one, "w", encoding="utf-8", closefd=False) for one in (1, 2))
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # it stands in the environment, too
        sys.argv, sys.path = command, [str(cwd), *sys.path]
        _forget_what_tests_brought()
        warnings.resetwarnings()
        for one in _QUIET:
            warnings.simplefilter("ignore", one)
        typer.main.get_command = lambda app, build=typer.main.get_command: _built() if app is cli.app else build(app)
        console.__init__()  # type: ignore[misc]  # it read the width when it was made
        code = _ended(_PROGRAMS[command[0]] if site is None else lambda: _standing_in(site))
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


def _standing_in(site: Path) -> int:
    """``fedguard``, imported anew: it finds what is installed in ``site``, and is read from there, whole, if it is there itself."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("fedguard", "tests")]:
        del sys.modules[name]
    sys.path = [sys.path[0], str(site), *sys.path[1:]]
    importlib.invalidate_caches()
    theirs, execute = (importlib.import_module(f"fedguard.{name}") for name in ("cli", "bench.running.execute"))
    execute.LocalPool = importlib.import_module("tests.inline").pool
    strangers = [
        name
        for name, module in sys.modules.items()
        if name.split(".")[0] == "fedguard" and not str(module.__file__).startswith(f"{site}{os.sep}")
    ]
    assert not (strangers and (site / "fedguard").is_dir()), f"not of {site}: {strangers}"
    theirs.main()
    return 0


def _ended(program: Callable[[], int]) -> int:
    try:
        return program()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _python() -> int:
    """``python FILE`` or ``python -m MODULE``."""
    module = sys.argv[1] == "-m"
    sys.argv = sys.argv[1 + module :]
    if module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)  # as Python does
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def _worker() -> int:
    worker.main()
    return 0


def _node() -> int:
    process.main(sys.argv[-1])
    return 0


def _apps() -> int:
    """The process in whose copies apps run. What tests have imported of an app is not that of another folder."""
    from fedguard.bridges import trial

    for stream in (sys.stdout, sys.stderr):  # a copy of the process ends without emptying them
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for name in [name for name in sys.modules if name.split(".")[0] == "digits"]:
        del sys.modules[name]
    trial.main()
    return 0


_PROGRAMS: dict[str, Callable[[], int]] = {
    "fedguard": cli.main, "pytest": pytest.console_main, "python": _python, "worker": _worker, "apps": _apps,
    "node": _node,
}  # fmt: skip
_PROGRAMS_BY_MODULE = {worker.__name__: "worker", apps.PROGRAM: "apps", process.__name__: "node"}
