"""A real server, a real browser. Without a browser these tests are skipped, and say so."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import stores

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.app.e2e.browser import Reader

WINDOW = {"width": 1400, "height": 1000}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def chromium() -> Iterator[Browser]:
    """Headless Chromium: that of the machine, or playwright's own."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=root)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    """A store with a run of every kind, and one to compare ``short`` with; or ``FEDGUARD_E2E_STORE``, made before."""
    if before := os.environ.get("FEDGUARD_E2E_STORE"):
        return Path(before)
    made = tmp_path_factory.mktemp("dashboard") / "store"
    stores.all_kinds(made)
    stores.wide(made)
    stores.short(made, "longer", rounds=4)
    return made


@contextmanager
def serving(store: Path, log: Path) -> Iterator[str]:
    """`fedguard dashboard` on a free port; gives its address once it answers."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedguard.cli", "dashboard", "--store", str(store), "--port", str(port)]
    environment = {**os.environ, "STREAMLIT_SERVER_HEADLESS": "true"}
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    address = f"http://localhost:{port}"
    try:
        for _ in range(300):
            assert server.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1) as answer:
                    assert answer.status == 200
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise AssertionError(f"the dashboard does not answer: {log.read_text()}")
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=20)
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="session")
def dashboard(store, tmp_path_factory) -> Iterator[str]:
    """The dashboard over the store."""
    with serving(store, tmp_path_factory.mktemp("server") / "log") as address:
        yield address


@pytest.fixture(scope="session")
def empty_dashboard(tmp_path_factory) -> Iterator[str]:
    """A dashboard over a store in which there is nothing."""
    folder = tmp_path_factory.mktemp("empty")
    with serving(folder / "runs", folder / "log") as address:
        yield address


@pytest.fixture(scope="session")
def shots(tmp_path_factory) -> Path:
    """Where pictures go: ``FEDGUARD_SHOTS``, to look at them."""
    folder = Path(os.environ.get("FEDGUARD_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def reader(browser, shots) -> Iterator[Callable[..., Reader]]:
    """Makes visitors: ``reader(address, color_scheme="dark")``. At the end nothing must have gone wrong for any."""
    readers: list[Reader] = []

    def make(address: str, **context: object) -> Reader:
        readers.append(_reader(browser, address, shots, context))
        return readers[-1]

    yield make
    for one in readers:
        one.page.context.close()
    problems = [problem for one in readers for problem in one.problems]
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def staying(browser, shots) -> Iterator[dict[str, Reader]]:
    """The visitors who stay, by what they asked for."""
    readers: dict[str, Reader] = {}
    yield readers
    for one in readers.values():
        one.page.context.close()
    assert not [one.problems for one in readers.values() if one.problems]


@pytest.fixture
def visitor(browser, shots, staying) -> Iterator[Callable[..., Reader]]:
    """As `reader`, but visitors who stay for all tests of a file that ask for the same, and go from page to page."""
    here: list[Reader] = []

    def make(address: str, **context: object) -> Reader:
        asked = f"{address} {sorted(context.items())}"
        if asked not in staying:
            staying[asked] = _reader(browser, address, shots, context)
        here.append(staying[asked])
        return here[-1]

    yield make
    problems = [one.problems.pop(0) for one in here for _ in list(one.problems)]  # once, be it of the test before
    assert not problems, "\n".join(problems)


def _reader(browser: Browser, address: str, shots: Path, context: dict[str, object]) -> Reader:
    from tests.app.e2e.browser import Reader

    return Reader(browser.new_context(**{"viewport": WINDOW, **context}).new_page(), address, shots)
