"""The same trial in one process, in Flower's simulation and as a deployment of real processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import Error, Message

from fedguard import api
from fedguard.bench.conformance.conform import cell_of, compared
from fedguard.bench.conformance.deployed import Deployed
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.apps import Apps, _asked, run_app
from fedguard.bench.running.manifest import write_manifest
from fedguard.commands.flower import below
from fedguard.errors import ConfigError
from fedguard.flower import inline, trial, witness
from fedguard.flower.deployment import run_deployed
from fedguard.flower.inline import InlineGrid
from fedguard.flower.node import drawing
from fedguard.flower.processes import Processes, free_port
from fedguard.flower.simulation import require_ray
from fedguard.flower.trial import run_trial
from fedguard.flower.watched import Asked
from fedguard.rng import Rng
from tests.flower.conftest import DEPLOYED, gone, killed, ours
from tests.forked import fedguard

APP = Path(__file__).parent / "app"

NODES = DEPLOYED
#: What its nodes train, for whoever looks at their messages.
LEARNS = {
    "training": {"model": "digits.task:Net", "data": "digits.task:load_data", "lr": "lr", "batch_size": "batch-size"}
}


class Shared:
    """Trials of deployments, on the SuperLink of all tests."""

    def __init__(self, federation):
        self._federation = federation

    def told(self, cell, seed, folder=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(trial.ENGINES, "deployment", partial(run_deployed, on=self._federation))
            return {"log": "", **trial.answer(_asked(cell, seed, folder))}

    def close(self):
        pass


def ran(engine, folder, attack="ipm(tau=5)", defense="median", on=None):
    """A trial of a suite on an engine, and what is to be judged of it: one of four nodes attacks a rule for a round."""
    plan = api.lay_out(
        {
            "name": engine,
            "app": {"folder": str(APP), "set": {"num-server-rounds": 1}, "engine": engine} | LEARNS,
            "clients": {"total": NODES, "malicious": 1},
            "matrix": {"attack": [attack], "defense": [defense]},
            "seeds": [3],
        }
    )[1]
    ((_, cell),) = plan.positions
    processes = Shared(on) if on else Apps()
    record, log = run_app(cell, 3, {}, processes)
    processes.close()
    assert record["status"] == "ok", f"{record['reason']}\n{log}"
    store = RunFolder(folder / engine)
    store.create()
    write_manifest(store, plan, {})
    store.write(record)
    from_text(to_text(record))
    return record["result"], Run.open(store.path, folder)


@pytest.fixture(scope="module")
def inline_result(tmp_path_factory):
    return ran("inline", tmp_path_factory.mktemp("inline"))[0]


def judged(run):
    """By the floor of `fedguard flower check`: what ends it with 3, and what does not."""
    return [line.split(", ", 1)[1] for line in below(run, 0.999)], list(below(run, 0.1))


def test_a_deployment_is_the_same_trial(federation, tmp_path, inline_result):
    """A SuperLink and its SuperNodes, attacked, defended and judged; to the last bit what it is in one process."""
    result, run = ran("deployment", tmp_path, on=federation)
    assert result == inline_result and result["rounds"]["updates"] == NODES and result["app"]["malicious"]
    assert judged(run) == (["below 99.9 %"], [])


def test_flowers_simulation_is_the_same_trial(tmp_path, inline_result):
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(ConfigError, match=r"engine: simulation needs ray==2.* is not installed. pip install 'flwr"):
            require_ray()
    else:
        result, run = ran("simulation", tmp_path)
        assert result == inline_result
        assert judged(run) == (["below 99.9 %"], [])


def test_a_supernode_that_dies_in_the_middle_is_named_and_the_others_go_on(federation, tmp_path):
    """Somebody looks at the messages of those who are left."""
    with killed(federation, 1, "Receiving: train message"):
        result, run = ran("deployment", tmp_path, "labels_llg", "own", on=federation)
    assert {*(one["clients"][0] for one in result["inference"]["targets"])} == {0, 2, 3}
    assert result["inference"]["score"]["label_accuracy"] > 0.8
    assert result["app"]["lost"] == [{"node": 1, "round": 1, "how": "was killed by SIGKILL"}]
    assert (result["rounds"]["updates"], result["rounds"]["silent"]) == (NODES - 1, 1)
    assert result["final_accuracy"] > 0.2  # the others have trained and measured
    (flags,) = [record["flags"] for record in run.ran.values()]
    assert "1 of 4 nodes stopped answering: node 1 from round 1 on (its process was killed by SIGKILL)" in str(flags)


@pytest.mark.parametrize(("architecture", "rounds"), [("server", 1), ("fedasync", 2)])
def test_a_deployed_server_is_the_simulated_one(federation, architecture, rounds):
    """Under attack; where it does not wait for its nodes, the simulation follows the order in which answers came."""
    engine, cell = Deployed(federation), cell_of(architecture, "ipm", "mean", NODES, rounds)
    one = compared(engine, architecture, cell, *engine.run([cell], 0), 0)
    assert one.passed and one.same_bits
    assert one.order is None if architecture == "server" else len(one.order) >= rounds * NODES


def test_a_supernode_that_dies_ends_a_deployed_conformance_with_one_line(federation):
    engine, cell = Deployed(federation), cell_of("server", None, "mean", NODES, 1)
    with killed(federation, 2, "Receiving: train message"), pytest.raises(ConfigError) as said:
        engine.run([cell], 0)
    told = str(said.value)
    assert told.startswith("conform: node 2 did not come to its end: ") and "\n" not in told
    assert told.endswith("The process of node 2 was killed by SIGKILL.")


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
    asked = ("-f", "0", "--nodes", str(nodes), "--seeds", "1", "--set", "num-server-rounds=3", "--jobs", "1")
    return fedguard("flower", "check", str(APP), *asked, cwd=folder)


@pytest.mark.parametrize(("nodes", "goes_on"), [(3, True), (2, False)])
def test_a_strategy_goes_on_without_the_lost_or_says_that_it_waits(monkeypatch, tmp_path, nodes, goes_on):
    """FedAvg wants two nodes; of three that leaves one to spare."""
    monkeypatch.setattr(witness, "WAITING", 0.5)
    monkeypatch.setattr(inline, "InlineGrid", Dies)
    asked = Asked(str(APP), {"num-server-rounds": 3}, None, None, 0, nodes, 0)
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
