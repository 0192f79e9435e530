"""Whole jobs in NVFlare's simulator are FedGuard's own training; processes end; suites, records, and the command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.nvflare, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("nvflare.app_common", reason="NVFlare is not installed: make test-nvflare")

import fedguard as fg
from fedguard.bench.records.record import from_text, to_text
from fedguard.bridges.nvflare.ending import MARK, find_marked
from fedguard.bridges.nvflare.job import NVFlareJob
from fedguard.bridges.nvflare.running import simulate
from fedguard.bridges.trial import answer
from tests.nvflare.test_nvflare_place import near
from tests.nvflare.trained import CLIENT, JOB, TEST, changed, own, request

#: A job's own aggregator: the median of each coordinate, by numpy alone.
MIDDLE = """
import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator


class Middle(ModelAggregator):
    def accept_model(self, model):
        self.held.append(model)

    def reset_stats(self):
        self.held = []

    def aggregate_model(self):
        rows = np.stack([one.params["numpy_key"] for one in self.held])
        return FLModel(params={"numpy_key": np.median(rows, axis=0)}, params_type=self.held[0].params_type)
"""
DIFF = "DIFF"


def simulated(asked, folder):
    """What the controller tells of a job, its first model and its last."""
    told = simulate(NVFlareJob.read(asked.app, asked.settings), asked, folder)
    assert told["reason"] is None and told["panic"] is None
    with np.load(folder / "told.npz") as arrays:
        return told, {name: arrays[name] for name in arrays.files}


def executor(told):
    return told["executors"][0]["executor"]["args"]


def sends_differences(told):
    executor(told)["params_transfer_type"] = DIFF


def test_an_unmodified_numpy_job(tmp_path):
    """Its own aggregation, and an attack of the site with half of the examples."""
    asked = request(attack="ipm(tau=5)", malicious=["site-1"], rounds=3)
    before = NVFlareJob.read(JOB).digest()
    told, models = simulated(asked, tmp_path)
    expected = own("ipm(tau=5)", None, ["site-1"], rounds=3)
    near(models["last/numpy_key"], expected[-1])
    assert [found["accuracy"] for _, found in told["curve"]] == pytest.approx(
        [CLIENT.accuracy(model, *TEST) for model in expected], abs=2e-3
    )
    assert NVFlareJob.read(JOB).digest() == before


def test_a_job_of_differences_under_a_rule(tmp_path):
    folder = changed(tmp_path, site=sends_differences)
    asked = request(folder, "alie", "nnm >> trimmed_mean", ["site-2"], rounds=3)
    (tmp_path / "run").mkdir()
    told, models = simulated(asked, tmp_path / "run")
    near(models["last/numpy_key"], own("alie", "nnm >> trimmed_mean", ["site-2"], rounds=3)[-1])
    assert told["params_type"] == DIFF


def test_a_job_with_an_aggregator_of_its_own(tmp_path):
    def middle(told):
        told["workflows"][0]["args"]["aggregator"] = {"path": "middle.Middle", "args": {}}

    folder = changed(tmp_path, server=middle, aggregator=MIDDLE)
    (tmp_path / "run").mkdir()
    told, models = simulated(request(folder, "ipm(tau=5)", None, ["site-1"], rounds=3), tmp_path / "run")
    near(models["last/numpy_key"], own("ipm(tau=5)", "median", ["site-1"], rounds=3)[-1])
    assert told["aggregator"] == "Middle"


def test_a_site_whose_process_dies(tmp_path):
    def dies(told):
        executor(told)["task_script_args"] = "--lr 0.5 --dies site-3:2"

    folder = changed(tmp_path, site=dies)
    (tmp_path / "run").mkdir()
    told, models = simulated(request(folder, rounds=3), tmp_path / "run")
    near(models["last/numpy_key"], own(rounds=3, dies=(2, 2))[-1])
    assert told["gone"] == {"2": 2} and told["lost"] == 2 and told["updates"] == 6 + 5 + 5


def test_a_torch_job_and_a_lying_site_with_a_rule_for_good(tmp_path):
    """No class of FedGuard in the controller's place: the job itself lies and defends, and FedGuard only looks on."""
    from tests.nvflare.torch_job import exported, trained

    folder = exported(tmp_path)
    (tmp_path / "run").mkdir()
    _, models = simulated(request(folder, rounds=2), tmp_path / "run")
    first = {name.removeprefix("first/"): value for name, value in models.items() if name.startswith("first/")}
    expected = trained(first, rounds=2)
    for name, value in expected.items():
        near(models[f"last/{name}"], value)


def test_a_suite_its_record_and_the_next_run(tmp_path):
    suite = {
        "name": "digits",
        "app": {"nvflare": str(JOB), "sites": 6, "malicious": ["site-1"], "set": {"num_rounds": 1}},
        "matrix": {"attack": ["none", "ipm(tau=5)", "label_flip"], "defense": ["median"]},
        "seeds": 1,
    }
    found = fg.run(suite, store=tmp_path, jobs=1)
    rows = {row["attack"]: row for row in found.rows()}
    assert [rows[name]["status"] for name in ("none", "ipm(tau=5)", "label_flip")] == ["ok", "ok", "refused"]
    record = found.ran[rows["ipm(tau=5)"]["cell"], 0]
    assert from_text(to_text(record))["result"] == record["result"]
    told = record["result"]["app"]
    assert told["framework"] == "nvflare" and told["version"].startswith("2.9") and told["malicious"] == [0]
    assert told["job"] == NVFlareJob.read(JOB).digest() and told["controller"].endswith("fedavg.FedAvg")
    assert told["params_type"] == "FULL" and told["weights"] == "NUM_STEPS_CURRENT_ROUND"
    assert record["config"]["task"]["data"] == {"name": "nvflare"} and record["config"]["architecture"] == "nvflare"
    assert record["result"]["final_accuracy"] == pytest.approx(
        CLIENT.accuracy(own("ipm(tau=5)", "median", ["site-1"], rounds=1)[-1], *TEST), abs=2e-3
    )
    began = time.monotonic()
    assert fg.run(suite, store=tmp_path, jobs=1).rows() == found.rows()
    assert time.monotonic() - began < 60  # all is stored: two trials take longer


def test_a_cyclic_job_is_refused_before_it_starts(tmp_path):
    def cyclic(told):
        told["workflows"][0]["path"] = "nvflare.app_common.workflows.cyclic_ctl.CyclicController"

    folder = changed(tmp_path, server=cyclic)
    asked = {**request(folder).__dict__, "rehearsal": True}
    told = answer(asked)
    assert told["status"] == "refused" and "no server aggregates" in told["reason"]


def test_all_processes_end_with_the_one_that_started_them(tmp_path):
    """As a worker ends that Ctrl-C, or a time limit, has killed: its pipe closes in the middle of a job."""
    asked = json.dumps(request(rounds=5).__dict__).encode() + b"\n"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fedguard.bridges.trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "FEDGUARD_TESTS": f"mark-{os.getpid()}"},
    )
    process.stdin.write(asked)
    process.stdin.flush()
    end = time.monotonic() + 180
    while len(of_tests()) < 10 and time.monotonic() < end:  # itself, its copy, two of the simulator, six sites
        time.sleep(0.2)
    assert len(of_tests()) >= 10
    process.stdin.close()
    assert process.wait(30) == -signal.SIGKILL
    process.stdout.close()
    end = time.monotonic() + 30
    while of_tests() and time.monotonic() < end:
        time.sleep(0.2)
    assert not of_tests() and MARK and not find_marked("none")


def of_tests():
    """Processes that this file's tests have started, and that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FEDGUARD_TESTS=mark-{os.getpid()}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
