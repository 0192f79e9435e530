"""Attacks and tests against a copy of the source, in a process that has imported nothing of FedGuard before."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tests.mutants.planting import Plant, PlantError, copied, plant

#: Tests that hold bytes of today against bytes of yesterday. They see every change, and say nothing about it.
FROZEN = ("test_vectors.py::test_a_frozen_round", "test_graph.py::test_frozen_example")
#: CPU seconds after which a plant counts as hanging.
LIMIT = 600
#: What says that a plant is no program any more, rather than a weak one.
_NONSENSE = (ImportError, SyntaxError, NameError, AttributeError, TypeError)


@dataclass(frozen=True)
class Noticed:
    """What became of one plant.

    Attributes:
        attacks: name of an attack -> what the referee says of it.
        tests: failing tests, from ``tests/secagg/`` on; of a file only the first, where all were run.
        frozen: failing tests that hold bytes against bytes.
        error: why the plant could not be judged; empty where it was.
    """

    attacks: dict[str, str]
    tests: list[str]
    frozen: list[str]
    error: str = ""

    def __bool__(self) -> bool:
        return bool(self.attacks or self.tests)


def watch(one: Plant | None, attacks: Sequence[str], tests: Sequence[str], *, whole: bool = False) -> Noticed:
    """Plant, and see who notices. To be called in a fresh process, at most once.

    Args:
        one: the plant; None for the control.
        attacks: names of attacks.
        tests: files or tests, from ``tests/secagg/`` on.
        whole: go on after a failing test, with the next file.
    """
    assert "fedguard" not in sys.modules, "the unplanted source was imported already"
    signal.signal(signal.SIGVTALRM, _hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    with tempfile.TemporaryDirectory(prefix="fedguard-plant-") as name:
        folder = copied(Path(name))
        sys.dont_write_bytecode = True
        sys.path.insert(0, name)
        os.chdir(folder)
        try:
            if one is not None:
                plant(one.edits, folder)
            _stands(folder)
            seen = _attacked(attacks)
            failed = _tested(folder, tests, whole) if tests else []
        except (PlantError, TimeoutError) as error:
            return Noticed({}, [], [], f"{type(error).__name__}: {error}")
    frozen = [test for test in failed if test in FROZEN]
    return Noticed(seen, [test for test in failed if test not in FROZEN], frozen)


def protocol_attacks() -> list[str]:
    """The names of all attacks on the protocol, read from the table without an import of anything."""
    from tests.mutants.planting import ROOT

    space: dict[str, Any] = {}
    exec((ROOT / "attacks" / "__init__.py").read_text(), space)  # a table of strings
    return list(space["PROTOCOL"])


def _stands(folder: Path) -> None:
    """Whether what was planted is still a program, and the one that is run: a session comes to an end, be it an error."""
    try:
        for file in sorted((folder / "fedguard" / "secagg").glob("*.py")):
            module = importlib.import_module(f"fedguard.secagg.{file.stem}")
            if module.__file__ is None or not Path(module.__file__).samefile(file):
                raise PlantError(f"{module.__name__} was imported from {module.__file__}, not from the copy.")
        import numpy as np

        from fedguard.secagg.simulation import ProtocolSimulation, Settings

        ones = np.ones(3, np.uint32)
        for drop in ({}, {"masked_input": [1]}):
            ProtocolSimulation(Settings(colluding=0, dropping=0.2)).run(
                round=1, clients=range(6), length=3, vector=lambda client, sid: ones, drop=drop
            )
    except _NONSENSE as error:
        raise PlantError(f"not a weakness but nonsense: {type(error).__name__}: {error}") from error


def _attacked(names: Sequence[str]) -> dict[str, str]:
    """The attacks that succeed, and what they have learned."""
    from fedguard.registry import load_registry
    from fedguard.secagg.contest import contest

    seen = {}
    for name in names:
        try:
            finding = contest(load_registry().get("protocol", name)())
        except Exception:  # an honest session in it no longer works, and it fell over that: no success
            continue
        if finding.verdict == "succeeded":
            seen[name] = finding.learned
    return seen


def _tested(folder: Path, tests: Sequence[str], whole: bool) -> list[str]:
    """The tests that fail."""
    import pytest

    failed: list[str] = []
    nonsense: list[str] = []

    class Recorder:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
            """Once a test of a file has failed, leave out the others of it; frozen ones are run all the same."""
            file = item.nodeid.partition("::")[0]
            return True if file in {test.partition("::")[0] for test in failed if _short(test) not in FROZEN} else None

        def pytest_exception_interact(self, node: pytest.Item, call: pytest.CallInfo[None]) -> None:
            assert call.excinfo is not None
            if isinstance(call.excinfo.value, NameError):
                nonsense.append(f"{node.nodeid}: {call.excinfo.value}")
            failed.append(node.nodeid)

    paths = [str(folder / (test if test.startswith("tests/") else f"tests/secagg/{test}")) for test in tests]
    stop = [] if whole else ["-x"]
    options = ["-p", "no:cacheprovider", "--order", "written", "--rootdir", str(folder), "-q", "--assert=plain", *stop]
    with contextlib.redirect_stdout(out := io.StringIO()):
        code = pytest.main([*options, *paths], plugins=[Recorder()])
    if nonsense:
        raise PlantError(f"not a weakness but nonsense: {nonsense[0]}")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        raise PlantError(f"pytest ended with {code!r}:\n{out.getvalue()[-2000:]}")
    return [_short(test) for test in failed]


def _short(test: str) -> str:
    return test.removeprefix("tests/secagg/")


def _hangs(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError(f"still running after {LIMIT} CPU seconds")
