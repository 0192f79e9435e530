"""The memory budget: updates that do not fit go through a file, give the same results, and the process stays within."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

import fedguard as fg
from fedguard import memmap
from fedguard.api import lay_out
from fedguard.architectures.server import Server
from fedguard.bench.running.budget import SCRATCH, VECTORS, in_words, parse_memory, within
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.errors import ConfigError
from fedguard.tasks.compute import USUAL_MEMORY

MiB = 1 << 20


def cell_of(defense="mean", attack="none", model="softmax", protocol=None, clients=(10, 2), **training):
    suite = {
        "name": "budget",
        "task": {"data": "digits", "model": model},
        "clients": {"total": clients[0], "malicious": clients[1]},
        "training": {"rounds": 2, "batch_size": 8, **training},
        "protocol": protocol or {},
        "matrix": {"attack": [attack], "defense": [defense]},
        "seeds": 1,
    }
    return lay_out(suite)[1].cells[-1]


def setup_of(cell):
    return set_up(cell, 0, Workbench().task(cell, 0))


# What is asked for.


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 << 30), ("512M", 512 << 20), ("1.5g", 3 << 29), ("2 GiB", 2 << 30), ("64KB", 1 << 16), (1000, 1000)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "4X", "-1G", "0", 0, "1e9", "G"])
def test_what_is_no_size_is_refused_in_one_line(text):
    with pytest.raises(ConfigError, match=r"memory: expected bytes, or a number with K, M, G or T, such as 4G; got "):
        parse_memory(text)


def test_a_run_refuses_a_memory_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match="memory: expected bytes"):
        fg.run("examples/quick.yaml", memory="lots", store=tmp_path)


# Who gets what.


def test_what_is_left_goes_to_engines_and_updates():
    """By hand: 300 MiB held, 16 vectors of 4 d, 64 MiB of blocks; half of the rest to the engines, down to a power of two."""
    setup = setup_of(cell_of())
    d = setup.task.dim
    rest = 400 * MiB - 300 * MiB - VECTORS * 4 * d - SCRATCH  # ten updates of 2600 bytes are less than a page each
    engines, updates = within(setup, 400 * MiB, 300 * MiB)
    assert engines == 16 * MiB
    assert updates == pytest.approx(rest - engines, abs=4 * d)
    assert engines + updates <= rest


def test_the_engines_never_take_more_than_without_a_budget():
    engines, updates = within(setup_of(cell_of()), 1 << 40, 300 * MiB)
    assert engines == USUAL_MEMORY
    assert updates > 1 << 39


def test_too_little_is_refused_with_what_would_do():
    setup = setup_of(cell_of())
    with pytest.raises(ConfigError) as refusal:
        within(setup, 350 * MiB, 300 * MiB)
    told = str(refusal.value)
    assert "\n" not in told
    assert told.startswith("memory: expected at least 38")
    assert "300M Python, data and network" in told
    assert told.endswith("got 350M. Raise --memory, or lower --jobs.")
    within(setup, 390 * MiB, 300 * MiB)


@pytest.mark.parametrize(
    ("what", "cell"),
    [
        ("10 updates, which are read as a whole, and a copy", {"attack": "alie", "defense": "median"}),
        ("10 updates, which are read as a whole, and a copy", {"defense": "lasa"}),
        ("the clients' own vectors of scaffold", {"algorithm": "scaffold", "local_steps": 2}),
        ("the sums of secure aggregation", {"protocol": {"secure_aggregation": "full"}}),
    ],
)
def test_what_cannot_be_streamed_is_asked_for(what, cell):
    """A vector of this network takes 200 MB, so each matrix counts."""
    setup = setup_of(cell_of(**cell))
    long = type("Long", (type(setup.task),), {"dim": 50_000_000})
    task = object.__new__(long)
    vars(task).update(vars(setup.task))
    with pytest.raises(ConfigError, match=what):
        within(dataclasses.replace(setup, task=task), 4000 * MiB, 300 * MiB)
    within(dataclasses.replace(setup_of(cell_of("median")), task=task), 4000 * MiB, 300 * MiB)


def test_a_trial_that_needs_more_fails_and_says_so(tmp_path):
    suite = {
        "name": "small",
        "task": {"data": "digits", "model": "softmax"},
        "clients": {"total": 4, "malicious": 0},
        "training": {"rounds": 1},
        "matrix": {"attack": ["none"], "defense": ["mean"]},
        "seeds": 1,
    }
    run = fg.run(suite, memory="100M", jobs=1, store=tmp_path)
    (row,) = run.with_status("failed")
    (record,) = run.records.values()
    assert record["reason"].startswith("ConfigError: memory: expected at least")
    assert record["reason"].endswith("got 100M. Raise --memory, or lower --jobs.")
    # much more than whatever the tests before this one have left in the process
    again = fg.run(suite, memory="8G", jobs=1, retry_failed=True, store=tmp_path)
    (record,) = again.records.values()
    assert record["status"] == "ok"
    assert record["cost"]["worker_memory_limit_bytes"] == 8 << 30
    assert record["cost"]["worker_peak_memory_bytes"] < 8 << 30


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file may be larger than its disk")
def test_a_disk_without_room_is_told_in_one_line():
    with pytest.raises(OSError, match=r"^no room for 1048576\.00G of updates in .*: .*\. Set TMPDIR to a folder"):
        memmap.round_buffer(1 << 20, 1 << 28, 0)


# The same results.


def final_models(cell, memory):
    return [report.model for report in Server().run(dataclasses.replace(setup_of(cell), memory=memory))]


CELLS = {
    "mean": {},
    "fedsgd": {"algorithm": "fedsgd", "defense": "krum"},
    "worker momentum": {"defense": "nnm >> trimmed_mean", "worker_momentum": 0.9},
    "fednova": {"algorithm": "fednova"},
    "scaffold": {"algorithm": "scaffold", "local_steps": 3},
    "fedper": {"algorithm": "fedper", "model": "mlp(hidden=(8,))"},
    "malicious clients who train": {"attack": "label_flip", "defense": "median"},
    "malicious clients who craft": {"attack": "alie", "defense": "geometric_median"},
    "values that are not finite": {"attack": "nan", "defense": "trimmed_mean"},
    "clients that clip": {"defense": "soteria >> mean", "rounds": 1},
    "sums under masks": {"protocol": {"secure_aggregation": "full"}},
    "a convolutional network": {"model": "lenet5", "rounds": 1},
}


@pytest.mark.parametrize("changes", CELLS.values(), ids=CELLS.keys())
def test_a_file_gives_what_memory_gives(changes):
    """One row of the file is held at a time, or four. Who trains beside whom moves the last bits of float32."""
    cell = cell_of(**changes)
    setup = setup_of(cell)
    start, d = setup.task.initial_model(setup.rng.child("model")), setup.task.dim
    expected = final_models(cell, None)
    for rows in (1, 4):
        assert memmap.is_mapped(memmap.round_buffer(8, d, rows * 4 * d))
        for found, wanted in zip(final_models(cell, rows * 4 * d), expected, strict=True):
            assert (found - wanted).norm() <= 1e-5 * (wanted - start).norm()
            assert not torch.equal(wanted, start)


@pytest.mark.slow
def test_networks_that_train_client_by_client_give_the_same_to_the_last_bit():
    """Up to 8 MiB the matrix is one block either way, and who trains beside whom is of no account."""
    cell = cell_of("trimmed_mean", "alie", model="resnet20(width=4, groups=2)", rounds=1, clients=(5, 1))
    d = setup_of(cell).task.dim
    assert torch.equal(final_models(cell, 2 * 4 * d)[0], final_models(cell, None)[0])


@pytest.mark.parametrize("defense", ["mean", "median", "trimmed_mean", "krum", "nnm >> trimmed_mean"])
def test_a_matrix_of_several_blocks_gives_the_same_up_to_rounding(defense):
    cell = cell_of(defense, model="mlp(hidden=(500,550))", algorithm="fedsgd", rounds=1)
    start = setup_of(cell).task.initial_model(setup_of(cell).rng.child("model"))
    expected, found = final_models(cell, None)[0] - start, final_models(cell, 8 * len(start))[0] - start
    assert 40 * len(start) > 8 * MiB
    assert (found - expected).norm() <= 1e-6 * expected.norm()


def test_a_budget_leaves_a_record_as_it_is():
    cell = cell_of("trimmed_mean", "label_flip", worker_momentum=0.5)
    free, limited = run_trial(cell, 0, {})[0], run_trial(cell, 0, {}, Workbench(memory=8 << 30))[0]
    assert free["result"] == limited["result"]
    assert limited["cost"]["worker_memory_limit_bytes"] == 8 << 30


# Within the budget.


def within_budget(tmp_path, clients, hidden, memory, defenses):
    suite = {
        "name": "large",
        "task": {"data": "digits", "model": {"name": "mlp", "hidden": hidden}},
        "clients": {"total": clients, "malicious": clients // 5},
        "training": {"algorithm": "fedsgd", "rounds": 1, "batch_size": 4},
        "matrix": {"attack": ["none"], "defense": defenses},
        "seeds": 1,
    }
    run = fg.run(suite, memory=memory, jobs=1, store=tmp_path)
    assert not run.with_status("failed"), next(iter(run.records.values()))["reason"]
    peaks = [record["cost"]["worker_peak_memory_bytes"] for record in run.records.values()]
    return max(peaks), {record["cost"]["update_bytes_sent"] for record in run.records.values()}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are compared with what Linux counts")
def test_four_hundred_megabytes_of_updates_stay_within_their_budget(tmp_path):
    """The worker's libraries take 400 MiB of it, so the updates cannot be in memory."""
    peak, sent = within_budget(tmp_path, 20, [2200, 2150], "950M", ["nnm >> trimmed_mean"])
    assert sent == {20 * 4 * 4_896_660}
    assert peak < parse_memory("950M"), in_words(peak)


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are compared with what Linux counts")
def test_four_gigabytes_of_updates_stay_within_one_and_a_half(tmp_path):
    """n = 100 and d = 10,001,560, trained and aggregated in a worker of its own; half of the clients and one rule in the short form."""
    clients, rules = 100, ["median", "nnm >> trimmed_mean", "mean", "trimmed_mean", "krum"]
    if os.environ.get("ANCHOR_SEEDS") == "1":
        clients, rules = 50, rules[:1]
    peak, sent = within_budget(tmp_path, clients, [3200, 3050], "1.5G", rules)
    assert sent == {clients * 4 * 10_001_560}
    assert peak < parse_memory("1.5G"), in_words(peak)


def test_a_peak_is_the_own_of_a_process_and_not_its_parents():
    child = "from fedguard.bench.running.environment import peak_memory; print(peak_memory())"
    parent = f"held = bytearray(400 << 20); import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    told = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True).stdout
    assert 4 * MiB < int(told) < 300 * MiB
