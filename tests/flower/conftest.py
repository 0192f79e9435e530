"""Apps run in processes that are forked from the tests' own, as commands are; see tests/forked.py."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from fedguard.bench.running import apps


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
