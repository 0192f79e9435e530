"""Suites on data of every source: run end to end, refused with a reason, and run again when the data change."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.running.check import explain_refusals
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.registry import load_registry

MODULE = """
import numpy as np
from torch import nn


def data():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 4))
    return x, (x[:, 0] > {threshold}).astype(int)


def network(shape, classes):
    return nn.Sequential(nn.Linear(4, {width}), nn.Tanh(), nn.Linear({width}, classes))
"""

SUITE = """
name: mine
task: {data: my_task:data, model: my_task:network}
clients: {total: 4, malicious: 1}
training: {rounds: 2, lr: 0.5}
seeds: 1
matrix: {attack: [none, label_flip]}
"""


@pytest.fixture
def folder(tmp_path):
    """A suite's folder, whose modules are forgotten afterwards."""
    yield tmp_path
    for name in ("my_task", "not_there"):
        sys.modules.pop(name, None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def write(folder, threshold=0.0, width=8):
    (folder / "my_task.py").write_text(MODULE.format(threshold=threshold, width=width))
    (folder / "suite.yaml").write_text(SUITE)
    sys.modules.pop("my_task", None)
    return folder / "suite.yaml"


def statuses(run):
    return [record["status"] for record in run.records.values()]


def started(run):
    return {key: record["environment"]["started"] for key, record in run.records.items()}


def test_functions_beside_the_suite_are_found_by_the_parent_and_by_the_workers(folder):
    run = fg.run(write(folder), store=folder / "runs", jobs=1)
    assert statuses(run) == ["ok"] * 3  # clean, attacked, and with a malicious client who sends nothing
    assert all(record["environment"]["code"]["my_task"] for record in run.records.values())
    assert started(fg.run(folder / "suite.yaml", store=folder / "runs", jobs=1)) == started(run)
    again = fg.run(write(folder, width=9), store=folder / "runs", jobs=1)  # the network is another one now
    assert set(started(again)) == set(started(run))
    assert not set(started(again).values()) & set(started(run).values())


def on(data, model="softmax", **more):
    return {
        "name": "one",
        "task": {"data": data, "model": model, **more.pop("task", {})},
        "clients": {"total": 4, "malicious": 1},
        "training": {"rounds": 2, "batch_size": 8, "lr": 0.1, **more.pop("training", {})},
        "seeds": 1,
        **more,
    }


def test_a_file_that_changes_makes_its_trials_run_again(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    file = str(tmp_path / "a.npz")
    np.savez(file, x=x, y=y, client=np.arange(80) // 2 % 8)
    suite = on({"name": "npz", "file": file}, task={"partition": "natural"})
    first = started(fg.run(suite, store=tmp_path / "runs", jobs=1))
    assert started(fg.run(suite, store=tmp_path / "runs", jobs=1)) == first
    np.savez(file, x=x, y=y, client=np.arange(80) // 2 % 10)  # the same examples in other hands
    second = started(fg.run(suite, store=tmp_path / "runs", jobs=1))
    assert second != first
    np.savez(file, x=x + y[:, None], y=y, client=np.arange(80) // 2 % 10)
    assert started(fg.run(suite, store=tmp_path / "runs", jobs=1)) != second


def test_a_missing_file_is_a_refused_record_with_the_reason_and_the_rest_runs(tmp_path):
    suite = on("wine", matrix={"task.data": ["wine", {"name": "idx", "folder": "not/there"}]})
    run = fg.run(suite, store=tmp_path / "runs", jobs=1)
    found = {record["status"]: record for record in run.records.values()}
    assert set(found) == {"ok", "refused"}
    assert "not/there: no such folder. Paths are relative to" in found["refused"]["reason"]
    assert found["refused"]["environment"]["data"] is None


@pytest.mark.parametrize(
    ("data", "model", "partition", "said"),
    [
        ("wine", "transformer", "iid", "model transformer: fails on inputs of shape [13]"),
        ("wine", "resnet20", "iid", "resnet20 needs images [channels, height, width]"),
        ("digits", "softmax", "natural", "natural: these data do not say which client an example is from"),
        ("synthetic(clients=3)", "softmax", "natural", "expected 4 natural clients"),
        ("not_there:data", "softmax", "iid", "data not_there:data: cannot be found: ModuleNotFoundError"),
        ("wine", "not_there:network", "iid", "model not_there:network: cannot be found"),
    ],
)
def test_what_does_not_come_together_is_refused_before_anything_runs(data, model, partition, said):
    _, plan = lay_out(on(data, model, task={"partition": partition}))
    (reason,) = explain_refusals(plan).values()
    assert said in reason


TEXT = {"name": "python_topics", "topics": 12, "window": 8, "stride": 32}
SMALL = {"name": "transformer", "width": 8, "heads": 2, "layers": 1}
RUN = [
    "label_flip", "dynamic_flip", "alie", "dead_pixels", "stuck_sensor", "backdoor(trigger='edge_case')",
    "labels_llg", "labels_yin", "nasr_passive", "loss",
]  # fmt: skip
REFUSED = [
    "gain_drift", "wrong_normalization", "iba", "a3fl", "backdoor(trigger='blended')", "backdoor(trigger='pixel_patch')",
    "dlg", "inverting_gradients", "analytic", "fishing",
]  # fmt: skip


def text_suite(model, attacks):
    training = {"algorithm": "fedsgd"}
    return on(
        TEXT,
        model,
        task={"partition": "iid"},
        training=training,
        observer={"server": "malicious"},
        matrix={"attack": attacks},
    )


@pytest.mark.parametrize("model", [SMALL, "softmax"])
def test_who_changes_texts_by_a_little_or_seeks_them_by_gradients_is_refused(model):
    """Whatever reads the texts: a number between two characters is none."""
    characters = (
        load_registry().build("data", TEXT).load().train.y.bincount()
    )  # which are frequent is up to Python's version
    base, victim = characters.topk(2).indices.tolist()
    collision = f"feature_collision(base={base}, victim={victim})"
    _, plan = lay_out(text_suite(model, ["none", collision, *REFUSED]))
    refused = explain_refusals(plan)
    for labels, cell in plan.positions:
        if labels["attack"] == "none":
            assert cell.id not in refused
        else:
            assert "tokens by number" in refused[cell.id] or "needs images" in refused[cell.id], labels["attack"]


def records(suite):
    """The records of a suite's cells, made in this process."""
    _, plan = lay_out(suite)
    assert explain_refusals(plan) == {}
    bench = Workbench()
    return [run_trial(cell, 0, {}, bench)[0] for cell in plan.cells]


@pytest.mark.slow
def test_other_attacks_run_on_texts():
    found = records(text_suite(SMALL, RUN))
    assert len(found) >= len(RUN)
    for record in found:
        assert record["environment"]["data"]
        for value in (record["result"]["final_accuracy"], record["result"]["worst_class_accuracy"]):
            assert 0 <= value <= 1


@pytest.mark.parametrize(
    ("data", "model", "partition"),
    [
        ("synthetic(clients=6, largest=80)", "softmax", "natural"),
        ("digits", "resnet20(width=4)", "quantity_skew"),
        ("digits", "mlp(hidden=(8,))", "feature_skew"),
        ("digits", "softmax", "gamma_similarity"),
    ],
)
def test_each_partition_and_network_runs_end_to_end(data, model, partition):
    task = {"partition": partition, "partition_seed": 3}
    suite = on(data, model, task=task, training={"local_steps": 4}, server={"root_data": 20})
    (record,) = records(suite)
    assert record["status"] == "ok" and record["result"]["final_accuracy"] > 0
    assert record["threat_card"]["dissimilarity"]["smallest_client"] >= 1
