"""The same trial in one process and in Flower's simulation; and what becomes of nodes and processes that are lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import Error, Message

from fedguard.bridges.flower import inline, witness
from fedguard.bridges.flower.inline import InlineGrid
from fedguard.bridges.flower.node import drawing
from fedguard.bridges.flower.processes import Processes, free_port
from fedguard.bridges.flower.simulation import require_ray
from fedguard.bridges.jobs import TrialRequest
from fedguard.bridges.trial import run_trial
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from tests.flower.conftest import gone, ours
from tests.flower.trials import APP, judged, ran
from tests.forked import fedguard


def test_flowers_simulation_is_the_same_trial(tmp_path, inline_result):
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(ConfigError, match=r"engine: simulation needs ray==2.* is not installed. pip install 'flwr"):
            require_ray()
    else:
        result, run = ran("simulation", tmp_path)
        assert result == inline_result
        assert judged(run) == (["below 99.9 %"], [])


class Dies(InlineGrid):
    """A Grid whose last node stops answering in the second round, as Flower has it."""

    def _answer(self, message):
        if self._sent > 2 * len(self._contexts) and message.metadata.dst_node_id == max(self._contexts):
            return Message(Error(5, "Node unavailable"), reply_to=message)
        return super()._answer(message)

    def get_node_ids(self):
        return list(self._contexts)[: -1 if self._sent > 2 * len(self._contexts) else None]


def checked(folder, nodes):
    """The command, without an attack."""
    asked = ("-f", "0", "--clients", str(nodes), "--seeds", "1", "--app-config", "num-server-rounds=3", "--jobs", "1")
    return fedguard("flower", "check", str(APP), *asked, cwd=folder)


@pytest.mark.parametrize(("nodes", "goes_on"), [(3, True), (2, False)])
def test_a_strategy_goes_on_without_the_lost_or_says_that_it_waits(monkeypatch, tmp_path, nodes, goes_on):
    """FedAvg wants two nodes; of three that leaves one to spare."""
    monkeypatch.setattr(witness, "WAITING", 0.5)
    monkeypatch.setattr(inline, "InlineGrid", Dies)
    asked = TrialRequest(str(APP), {"num-server-rounds": 3}, None, None, 0, nodes, 0)
    if goes_on:
        found = run_trial(asked)
        assert found["gone"] == {"2": 2} and found["lost"] == 1 and found["updates"] == 3 + 2 + 2
        assert len(found["accuracy"]) == 3 and not found["raised"]
        said = checked(tmp_path, nodes)
        assert said.returncode == 0, said.stdout + said.stderr
        assert "no attack against own, seed 0: 1 of 3 nodes stopped answering: node 2 from round 2 on" in said.stderr
    else:
        with pytest.raises(
            ConfigError, match="after round 2 the app's strategy waits for more nodes than the 1 .* of 2, and node 1 "
        ):
            run_trial(asked)
        said = checked(tmp_path, nodes)
        assert said.returncode == 4, said.stdout + said.stderr
        assert "1 of 1 trials failed: after round 2 the app's strategy waits for more nodes than the 1" in said.stderr


def test_a_superlink_whose_port_is_taken_takes_another_or_says_so_in_a_line(tmp_path):
    with socket.socket() as taken, Processes(tmp_path) as processes:
        taken.bind(("127.0.0.1", 0))
        taken.listen()  # it answers, and is no SuperLink
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match="the superlink found no free port on 127.0.0.1: .*address already in use"
        ):
            processes.superlink(iter([port]))
        other = free_port()
        assert processes.superlink(iter([port, other])) == other
        with socket.create_connection(("127.0.0.1", other), timeout=5):
            pass


def test_all_processes_end_with_the_one_that_started_them(tmp_path, monkeypatch, brisk):
    """As a worker ends that Ctrl-C, or a time limit, has killed: its pipe closes."""
    monkeypatch.setenv("FEDGUARD_TEST_MARK", mark := f"mark-{os.getpid()}-ended")
    asked = f'{{"app": "{APP}", "settings": {{}}, "attack": null, "defense": null, "f": 0, "nodes": 2, "seed": 0, "engine": "deployment"}}'
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fedguard.bridges.trial"],
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
