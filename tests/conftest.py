"""Every test runs with one torch thread, as trials do; and trials run in the test's own process unless it is marked `processes`."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

from fedguard.bench.engines.local import LocalPool
from tests.inline import pool

torch.set_num_threads(1)
settings.register_profile(
    "fedguard", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("fedguard")


@pytest.fixture(autouse=True, scope="module")
def inline(request):
    """Workers are processes, which take seconds to start; where none is tested, their code runs here."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("processes") is None:
            patch.setattr("fedguard.bench.execute.LocalPool", pool)
        yield


@pytest.fixture(autouse=True)
def processes(request, inline, monkeypatch):
    if request.node.get_closest_marker("processes") is not None:
        monkeypatch.setattr("fedguard.bench.execute.LocalPool", LocalPool)
