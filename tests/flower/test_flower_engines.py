"""The same trial in one process, in Flower's simulation and as a deployment of real processes."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("flwr", reason="Flower is not installed: make test-flower")

from flwr.app import Error, Message

from fedguard import api
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.apps import Apps, run_app
from fedguard.bench.running.manifest import write_manifest
from fedguard.commands.flower import below
from fedguard.errors import ConfigError
from fedguard.flower import inline, watched
from fedguard.flower.inline import InlineGrid
from fedguard.flower.node import drawing
from fedguard.flower.processes import Processes, free_port
from fedguard.flower.simulation import require_ray
from fedguard.flower.trial import run_trial
from fedguard.flower.watched import Asked
from fedguard.rng import Rng

APP = Path(__file__).parent / "app"


def ran(engine, folder, attack="ipm(tau=5)", defense="median"):
    """A trial of a suite on an engine, and what is to be judged of it: one of three nodes attacks a rule for a round."""
    plan = api.lay_out(
        {
            "name": engine,
            "app": {"folder": str(APP), "set": {"num-server-rounds": 1}, "engine": engine},
            "clients": {"total": 3, "malicious": 1},
            "matrix": {"attack": [attack], "defense": [defense]},
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
    from_text(to_text(record))
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


def killed_while_it_trains(mark: str, number: int) -> None:
    """Kill a SuperNode, as a machine that loses its power would, once it has been asked to train."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        time.sleep(0.1)
        for process in map(Path, (f"/proc/{one}" for one in ours(mark))):
            with suppress(OSError):
                if f"partition-id={number} ".encode() in (process / "cmdline").read_bytes():
                    home = re.search(rb"FLWR_HOME=([^\0]+)", (process / "environ").read_bytes())[1].decode()
                    if "Receiving: train message" in (Path(home) / f"supernode-{number}.log").read_text():
                        os.kill(int(process.name), signal.SIGKILL)
                        return


def test_a_supernode_that_dies_in_the_middle_is_named_and_the_others_go_on(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDGUARD_TEST_MARK", mark := f"mark-{os.getpid()}-died")
    death = threading.Thread(target=killed_while_it_trains, args=(mark, 1))
    death.start()
    result, run, _ = ran("deployment", tmp_path, "none", "own")
    death.join()
    assert result["app"]["lost"] == [{"node": 1, "round": 1, "how": "was killed by SIGKILL"}]
    assert (result["rounds"]["updates"], result["rounds"]["silent"]) == (2, 1)
    assert result["final_accuracy"] > 0.2  # the other two have trained and measured
    (flags,) = [record["flags"] for record in run.ran.values()]
    assert "1 of 3 nodes stopped answering: node 1 from round 1 on (its process was killed by SIGKILL)" in str(flags)
    assert gone(mark)


class Dies(InlineGrid):
    """A Grid whose last node stops answering in the second round, as Flower has it."""

    def _answer(self, message):
        if self._sent > 2 * len(self._contexts) and message.metadata.dst_node_id == max(self._contexts):
            return Message(Error(5, "Node unavailable"), reply_to=message)
        return super()._answer(message)

    def get_node_ids(self):
        return list(self._contexts)[: -1 if self._sent > 2 * len(self._contexts) else None]


@pytest.mark.parametrize(("nodes", "goes_on"), [(3, True), (2, False)])
def test_a_strategy_goes_on_without_the_lost_or_says_that_it_waits(monkeypatch, nodes, goes_on):
    """FedAvg wants two nodes; of three that leaves one to spare."""
    monkeypatch.setattr(watched, "WAITING", 0.5)
    monkeypatch.setattr(inline, "InlineGrid", Dies)
    asked = Asked(str(APP), {"num-server-rounds": 3}, None, None, 0, nodes, 0)
    if goes_on:
        found = run_trial(asked)
        assert found["gone"] == {"2": 2} and found["lost"] == 1 and found["updates"] == 3 + 2 + 2
        assert len(found["accuracy"]) == 3 and not found["raised"]
    else:
        with pytest.raises(
            ConfigError, match="after round 2 the app's strategy waits for more nodes than the 1 .* of 2, and node 1 "
        ):
            run_trial(asked)


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
