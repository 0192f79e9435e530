"""The same trial in one process, in Flower's simulation and as a deployment of real processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from fedguard import api
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.apps import Apps, run_app
from fedguard.bench.running.manifest import write_manifest
from fedguard.commands.flower import below
from fedguard.errors import ConfigError
from fedguard.flower.node import drawing
from fedguard.flower.processes import Processes, free_port
from fedguard.flower.simulation import require_ray
from fedguard.rng import Rng

APP = Path(__file__).parent / "app"


def ran(engine, folder, nodes=3):
    """A trial of a suite on an engine, and what is to be judged of it: one of three nodes attacks a rule for a round."""
    plan = api.lay_out(
        {
            "name": engine,
            "app": {"folder": str(APP), "set": {"num-server-rounds": 1}, "engine": engine},
            "clients": {"total": nodes, "malicious": 1},
            "matrix": {"attack": ["ipm(tau=5)"], "defense": ["median"]},
            "seeds": [3],
        }
    )[1]
    ((_, cell),) = plan.positions
    processes = Apps()
    record, log = run_app(cell, 3, {}, processes)
    processes.close()
    assert record["status"] == "ok", f"{record['reason']}\n{log}"
    store = RunFolder(folder / engine)
    store.create()
    write_manifest(store, plan, {})
    store.write(record)
    return record["result"], Run.open(store.path, folder), log


@pytest.fixture(scope="module")
def inline_result(tmp_path_factory):
    return ran("inline", tmp_path_factory.mktemp("inline"))[0]


def judged(run):
    """By the floor of `fedguard flower check`: what ends it with 3, and what does not."""
    return [line.split(", ", 1)[1] for line in below(run, 0.999)], list(below(run, 0.1))


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


def test_a_deployment_is_the_same_trial(monkeypatch, tmp_path, inline_result):
    """A SuperLink and three SuperNodes, attacked, defended and judged; to the last bit what it is in one process."""
    monkeypatch.setenv("FEDGUARD_TEST_MARK", mark := f"mark-{os.getpid()}-deployed")
    result, run, log = ran("deployment", tmp_path)
    assert result == inline_result and result["rounds"]["updates"] == 3 and result["app"]["malicious"]
    assert judged(run) == (["below 99.9 %"], [])
    assert "--- supernode-2" in log
    assert gone(mark)


def test_flowers_simulation_is_the_same_trial(tmp_path, inline_result):
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(ConfigError, match=r"engine: simulation needs ray==2.* is not installed. pip install 'flwr"):
            require_ray()
    else:
        result, run, _ = ran("simulation", tmp_path)
        assert result == inline_result
        assert judged(run) == (["below 99.9 %"], [])


def test_a_superlink_whose_port_is_taken_is_one_line(tmp_path):
    port = free_port()
    import socket

    with socket.socket() as taken, Processes(tmp_path) as processes:
        taken.bind(("127.0.0.1", port))
        with pytest.raises(ConfigError, match="the superlink ended: .*address already in use"):
            processes.superlink(port)


def test_all_processes_end_with_the_one_that_started_them(tmp_path, monkeypatch):
    """As a worker ends that Ctrl-C, or a time limit, has killed: its pipe closes."""
    monkeypatch.setenv("FEDGUARD_TEST_MARK", mark := f"mark-{os.getpid()}-ended")
    asked = f'{{"app": "{APP}", "settings": {{}}, "attack": null, "defense": null, "f": 0, "nodes": 2, "seed": 0, "engine": "deployment"}}'
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fedguard.flower.trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.stdin.write(asked.encode() + b"\n")
    process.stdin.flush()
    end = time.monotonic() + 120
    while (
        len(ours(mark)) < 5 and time.monotonic() < end
    ):  # itself, its copy, a SuperLink with its SuperExec, a SuperNode
        time.sleep(0.2)
    assert len(ours(mark)) >= 5
    process.stdin.close()
    assert process.wait(30) == -signal.SIGKILL
    process.stdout.close()
    assert gone(mark)


def test_draws_of_an_app_are_its_own_and_leave_no_trace():
    import random

    import numpy as np
    import torch

    def drawn(node):
        with drawing(Rng(5).child("node", node)):
            return random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002  apps draw from there

    random.seed(1)
    expected = random.Random(1).random()
    assert drawn(0) == drawn(0) != drawn(1)
    assert random.random() == expected
