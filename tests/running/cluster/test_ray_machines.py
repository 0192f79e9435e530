"""Clusters that come and go: a machine is lost, a run is interrupted, a cluster asks for a token.

Each has its own. They stand apart from the tests of one cluster, so that these go to one process of pytest-xdist and they to another.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial

import pytest

import fedguard as fg
from tests.running.cluster.conftest import SUITE, Ear, ran_at, records

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray")


def test_a_machine_is_lost_in_the_middle_of_200_cells(plugin, tmp_path):
    """Its trial in flight runs again elsewhere: all records are there, once each, and equal those of one process."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    held = tmp_path / "held"
    noise = [f"{{name: gaussian, scale: {1 + k}}}" for k in range(24)]
    suite = plugin(
        *noise[:8],
        f"{{name: mine, what: stay, at: {held}}}",
        *noise[8:],
        defense="mean, median, trimmed_mean, krum, geometric_median, centered_clipping, nnm >> mean, cge",
    )
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        machines = [made.add_node(num_cpus=1) for _ in range(3)]
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)

        def lose() -> None:
            holding = held.read_text() if held.exists() else ""  # it is empty before it is written
            if holding and machines:
                machine = next(one for one in machines if one.all_processes["raylet"][0].process.pid == int(holding))
                made.remove_node(machine, allow_graceful=False)
                machines.clear()

        ear = Ear(lose)
        there = fg.run(suite, store=tmp_path / "there", engine=fg.Ray(), listener=ear)
    finally:
        ray.shutdown()
        made.shutdown()
    here = fg.run(suite, store=tmp_path / "here", jobs=1)
    assert len(there.records) >= 200
    assert records(there) == records(here)
    assert len(ear.ran) == len(set(ear.ran)) == len(there.records)
    assert sum("runs again" in note for note in ear.notes) == 1, ear.notes


def test_ctrl_c_keeps_what_is_done_and_the_next_run_goes_on(plugin, tmp_path):
    suite = plugin("\"mine(what='sleep')\"", "ipm", "mine")
    command = [sys.executable, "-m", "fedguard.cli", "run", str(suite), "--engine", "ray", "--jobs", "1", "--store"]
    # whoever starts the tests may ignore it: `&` of a script does
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [*command, "there", "--set", "training.rounds=10"], stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    done = tmp_path / "there" / "plugged" / "cells"
    deadline = time.monotonic() + 120
    while not list(done.glob("*/*.json")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "trials are stored. Run the same command to go on." in said
    kept = {path: path.read_bytes() for path in done.glob("*/*.json")}
    assert kept
    run = fg.run(suite, store="there", overrides=["training.rounds=10"], jobs=1)
    assert len(run.records) > len(kept)
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_who_has_no_token_of_the_cluster_is_told_so_and_who_has_it_is_let_in(tmp_path, monkeypatch):
    """Clusters of new Rays ask for one; a process looks for it if it is told to."""
    (tmp_path / "quick.json").write_text(
        json.dumps({**SUITE, "seeds": 1, "matrix": {"attack": ["none"], "defense": ["mean"]}})
    )
    for name, value in {
        "RAY_AUTH_TOKEN": "a" * 64,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    short = tempfile.mkdtemp(dir="/tmp")  # Ray binds sockets in it, whose paths have 107 bytes at most
    options = [
        "--head",
        f"--temp-dir={short}",
        "--block",
        "--num-cpus=1",
        "--include-dashboard=false",
        f"--port={port}",
    ]
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *options],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_it_listens(port, head)
        address = f"127.0.0.1:{port}"
        refused = ran_at(address, tmp_path, RAY_AUTH_MODE="disabled")
        let_in = ran_at(address, tmp_path, RAY_AUTH_MODE="token")
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(short, ignore_errors=True)
    assert refused.returncode == 2
    assert "If it asks for a token, as new ones do, set RAY_AUTH_MODE=token" in refused.stderr
    assert let_in.returncode == 0, let_in.stderr


def _until_it_listens(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
    raise AssertionError("no head came up")
