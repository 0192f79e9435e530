"""Apps run in processes that are forked from the tests' own, as commands are; see tests/forked.py.

A SuperLink with four SuperNodes is started once, with the first test that asks for it, and runs the apps of all of them. A node's
process for a message is a copy of a warm one: brisk/.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedguard.bench.running import apps

#: How many SuperNodes the tests' federation has.
DEPLOYED = 4
BRISK = Path(__file__).parent / "brisk"


@pytest.fixture(autouse=True, scope="module")
def forked_apps():
    from tests.forked import ForkedBytes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apps, "subprocess", SimpleNamespace(Popen=ForkedBytes, PIPE=subprocess.PIPE))
        yield


@pytest.fixture(autouse=True)
def started_apps(request, forked_apps, monkeypatch):
    """Where the start itself matters, tests say `pytest.mark.processes`."""
    if request.node.get_closest_marker("processes") is not None:
        monkeypatch.setattr(apps, "subprocess", subprocess)


def briskly(patch) -> None:
    """Let Flower's programs, which start from here on, wait less; see brisk/sitecustomize.py."""
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(BRISK), os.environ.get("PYTHONPATH", "")])))


@pytest.fixture
def brisk(monkeypatch):
    briskly(monkeypatch)


@pytest.fixture(scope="session")
def federation(tmp_path_factory, started_once):
    """The tests' own; each node has a folder, and when all tests are over no process is left and all that was said is told."""
    from fedguard.bridges.flower.deployment import FlowerDeployment

    started_once("federation")
    homes = [tmp_path_factory.mktemp(f"node-{number}") for number in range(DEPLOYED)]
    with pytest.MonkeyPatch.context() as patch:
        briskly(patch)
        patch.setenv("FEDGUARD_TEST_MARK", mark := f"mark-{os.getpid()}-federation")
        with contextlib.ExitStack() as stack:
            one = stack.enter_context(FlowerDeployment(DEPLOYED, lambda number: {"home": str(homes[number])}))
            one.homes = homes
            yield one
            with contextlib.redirect_stdout(io.StringIO()) as said:
                stack.close()
    assert all(f"--- {name}" in said.getvalue() for name in ("superlink", "supernode-0", "supernode-3"))
    assert gone(mark)


@pytest.fixture(scope="session")
def inline_result(tmp_path_factory):
    """The trial that all engines are to give, in one process."""
    from tests.flower.trials import ran

    return ran("inline", tmp_path_factory.mktemp("inline"))[0]


@contextlib.contextmanager
def killed(federation, number, when, times=1):
    """Kill a SuperNode, as a machine that loses its power would, once its log says something so many more times; in the end
    another one takes its place."""
    log, process = federation.home / f"supernode-{number}.log", federation.processes._running[f"supernode-{number}"]
    before, over = log.read_text().count(when), threading.Event()

    def kill():
        while not over.is_set():
            if log.read_text().count(when) >= before + times:
                os.kill(process.pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    death = threading.Thread(target=kill)
    death.start()
    try:
        yield
    finally:
        over.set()
        death.join()
        if process.poll() is not None:
            federation.again(number)


def ours(marker: str) -> list[int]:
    """Processes with a marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes() and " Z " not in (folder / "stat").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def gone(marker: str, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and ours(marker):
        time.sleep(0.2)
    return not ours(marker)
