"""Updates that lie in a memory-mapped file: the same results as in memory, in a small part of their own size."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard import kernels, memmap
from fedguard.errors import InputError
from tests.root import ROOT
from tests.table import normal

RULES = [
    "mean",
    "median",
    "trimmed_mean",
    "meamed",
    "phocas",
    "krum",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
    "centered_clipping(steps=3)",
    "bulyan",
    "sign_sgd",
    "clip >> mean",
    "nnm >> trimmed_mean",
    "bucketing >> median",
]


@pytest.fixture
def stored(tmp_path):
    """Updates in memory and the same in a file, long enough for several blocks of either size."""
    rows = normal(9, 500_003, seed=3, center=0.5).numpy()
    assert rows.nbytes > 2 * kernels.LONG_BYTES
    np.save(tmp_path / "updates.npy", rows)
    return rows, np.load(tmp_path / "updates.npy", mmap_mode="r")


@pytest.mark.filterwarnings("ignore::fedguard.errors.GuaranteeWarning")
@pytest.mark.parametrize("rule", RULES)
def test_a_file_gives_what_memory_gives(rule, stored):
    rows, file = stored
    expected, found = fg.aggregate(rule, rows, f=1), fg.aggregate(rule, file, f=1)
    assert isinstance(found, np.ndarray)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_plain_loop_over_the_file_agrees(stored):
    _, file = stored
    ordered = np.sort(np.asarray(file), axis=0)
    assert np.array_equal(fg.aggregate("median", file, f=1), ordered[4])
    assert np.allclose(fg.aggregate("trimmed_mean", file, f=2), ordered[2:7].mean(0), atol=1e-6)


@pytest.mark.parametrize("rule", ["lasa", "nnm >> sign_sgd", "sign_guard", "dnc(sample=100)"])
def test_a_rule_that_needs_the_whole_matrix_says_so(rule, stored):
    with pytest.raises(InputError, match="reads the updates as a whole; these lie in a memory-mapped file"):
        fg.aggregate(rule, stored[1], f=1)


def test_not_a_number_in_a_file_is_seen(tmp_path):
    rows = normal(4, 700).numpy()
    rows[2, 650] = np.nan
    np.save(tmp_path / "updates.npy", rows)
    with pytest.raises(InputError, match=r"rows \[2\] hold NaN"):
        fg.aggregate("mean", np.load(tmp_path / "updates.npy", mmap_mode="r"))


def test_a_mapping_is_known_by_its_parts_and_forgotten_when_it_is_gone(stored):
    updates = memmap.wrap_memmap(stored[1])
    assert memmap.is_mapped(updates)
    assert memmap.is_mapped(updates[2:, 5:])
    assert not memmap.is_mapped(updates.clone())
    own = np.memmap(stored[1].filename, np.float32, "r", offset=stored[1].offset, shape=stored[1].shape)
    address = memmap.wrap_memmap(own).data_ptr()
    assert address in memmap._MAPPINGS
    del own
    gc.collect()
    assert address not in memmap._MAPPINGS


def test_a_private_copy_keeps_what_was_written_to_it(stored):
    """Of a copy-on-write mapping the written pages are nowhere else, so they must not be let go."""
    private = np.memmap(stored[1].filename, np.float32, "c", offset=stored[1].offset, shape=stored[1].shape)
    private[0, 0] = 1234.5
    updates = memmap.wrap_memmap(private)
    memmap.let_go(updates)
    assert updates[0, 0] == 1234.5


def test_the_buffer_of_a_round_lies_in_memory_up_to_the_budget():
    assert not memmap.is_mapped(memmap.round_buffer(5, 100, None))
    assert not memmap.is_mapped(memmap.round_buffer(5, 100, 2000))
    buffer = memmap.round_buffer(5, 100, 1999)
    assert memmap.is_mapped(buffer)
    assert buffer.shape == (5, 100)
    assert buffer.dtype == torch.float32


def test_a_buffer_in_a_file_keeps_what_was_written_and_is_used_again():
    rows = normal(5, 3000)
    buffer = memmap.round_buffer(5, 3000, 1000)
    for row, values in enumerate(rows):
        buffer[row] = values
        memmap.let_go(buffer)
    assert torch.equal(buffer, rows)
    smaller = memmap.round_buffer(4, 3000, 1000, buffer)
    assert smaller.data_ptr() == buffer.data_ptr()
    assert torch.equal(smaller, rows[:4])
    assert memmap.is_mapped(smaller)
    assert memmap.round_buffer(6, 3000, 1000, buffer).data_ptr() != buffer.data_ptr()


MEASURE = """
import sys, numpy as np, torch
torch.set_num_threads(1)
import fedguard as fg

folder, n, d, *rules = sys.argv[1:]
n, d = int(n), int(d)
file = np.memmap(folder + "/updates", np.float32, "w+", shape=(n, d))
for row in range(n):
    file[row] = np.random.default_rng(row).standard_normal(d, np.float32)
    file[row, :3] = row, -row, n - row
del file
file = np.memmap(folder + "/updates", np.float32, "r", shape=(n, d))
for rule in rules:
    fg.aggregate(rule, np.ascontiguousarray(file[:, :2000]), f=n // 5)     # whatever is allocated once

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10

open("/proc/self/clear_refs", "w").write("5")                              # the peak so far is forgotten
base = peak()
for rule in rules:
    found = fg.aggregate(rule, file, f=n // 5)
    if rule == "median":
        assert list(found[:3]) == [(n - 1) / 2, -(n - 1) / 2, (n + 1) / 2], found[:3]
print(base, peak())
"""


def peak_of(folder: Path, n: int, d: int, rules: list[str]) -> tuple[int, int]:
    """MiB that a process holds before and at most while it aggregates n updates of d coordinates from a file."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process can be started anew on Linux only")
    command = [sys.executable, "-W", "ignore", "-c", MEASURE, str(folder), str(n), str(d), *rules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, peak = done.stdout.split()
    return int(before), int(peak)


@pytest.mark.slow
def test_aggregation_from_a_file_needs_a_small_part_of_its_size(tmp_path):
    """120 MB of updates: the process grows by blocks and a few vectors of 1.2 MB."""
    before, peak = peak_of(tmp_path, 100, 300_000, ["median", "krum", "centered_clipping", "nnm >> trimmed_mean"])
    assert peak - before < 40


@pytest.mark.slow
def test_four_gigabytes_are_aggregated_in_one(tmp_path):
    """n = 100 and d = 10,000,000: the whole process, libraries included, stays below 1 GB. Two gigabytes and two of the rules in
    the short form."""
    n, rules = 100, ["median", "nnm >> trimmed_mean", "mean", "geometric_median"]
    if os.environ.get("ANCHOR_SEEDS") == "1":
        n, rules = 50, rules[:2]
    _, peak = peak_of(tmp_path, n, 10_000_000, rules)
    assert peak < 1000
