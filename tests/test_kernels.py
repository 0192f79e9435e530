"""Gram matrices, sorting, weighted sums: exact where float32 alone would not be, and frugal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedguard import kernels
from fedguard.contracts import Gram
from fedguard.errors import ContractError
from tests.root import ROOT
from tests.table import normal


def gram_of(updates, **anchors) -> Gram:
    return Gram(lambda: kernels.gram_matrix(updates, list(anchors.values())), len(updates), tuple(anchors))


def exact_distances(updates) -> torch.Tensor:
    rows = updates.double()
    return (rows[:, None] - rows[None, :]).square().sum(2)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 10), d=st.integers(1, 50))
def test_gram_gives_distances_norms_and_products(seed, n, d):
    updates, anchor = normal(n, d, seed), normal(1, d, seed + 1)[0]
    gram, rows = gram_of(updates, root=anchor), updates.double()
    assert torch.allclose(gram.distances_squared(), exact_distances(updates), rtol=1e-4, atol=1e-4)
    assert torch.allclose(gram.norms(), rows.norm(dim=1), rtol=1e-4, atol=1e-4)
    assert torch.allclose(gram.products(), rows @ rows.T, rtol=1e-4, atol=1e-3)
    assert torch.allclose(gram.products_with("root"), rows @ anchor.double(), rtol=1e-4, atol=1e-3)
    assert torch.allclose(gram.distances_to("root"), (rows - anchor.double()).norm(dim=1), rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 10_000))
def test_mixing_a_gram_matrix_is_mixing_the_rows(seed):
    updates, anchor = normal(7, 9, seed), normal(1, 9, seed + 1)[0]
    matrix = torch.rand(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))  # sums are not 1
    mixed = gram_of(updates, root=anchor).mix(matrix)
    direct = gram_of((matrix @ updates.double()).float(), root=anchor)
    for result, expected in (
        (mixed.distances_squared(), direct.distances_squared()),
        (mixed.norms(), direct.norms()),
        (mixed.products_with("root"), direct.products_with("root")),
    ):
        assert torch.allclose(result, expected, rtol=1e-4, atol=1e-3)


def test_close_rows_far_from_the_origin_keep_their_distances():
    """Without centring float32 would lose them altogether: 1e4^2 * 1e3 coordinates against distances of 1e-2."""
    updates = normal(8, 1000, spread=1e-2, center=1e4)
    assert torch.allclose(gram_of(updates).distances_squared(), exact_distances(updates), rtol=1e-3)
    plain = updates @ updates.T
    squares = plain.diagonal()
    lost = squares[:, None] + squares[None, :] - 2 * plain
    assert not torch.allclose(lost.double(), exact_distances(updates), rtol=0.5)


@pytest.mark.parametrize("factor", [1e6, 1e15, 1e25, 1e37])
def test_one_huge_row_does_not_blur_the_others(factor):
    updates = normal(8, 1000)
    updates[0] = factor
    exact = exact_distances(updates)
    found = gram_of(updates).distances_squared()
    assert torch.allclose(found[1:, 1:], exact[1:, 1:], rtol=1e-3)
    assert torch.allclose(found[0, 1:], exact[0, 1:], rtol=1e-3)


def test_an_offset_that_no_sample_shows_does_not_blur_the_others():
    """All rows share a huge value in one of 100,000 coordinates, which the sample passes by."""
    updates = normal(8, 100_000)
    plain = exact_distances(updates)
    updates[:, 101] = 1e6
    updates[:, 101] += torch.arange(8)
    plain += (torch.arange(8)[:, None] - torch.arange(8)).double().square() - exact_distances(
        normal(8, 100_000)[:, 101:102]
    )
    assert torch.allclose(gram_of(updates).distances_squared(), plain, rtol=1e-3)


@pytest.mark.parametrize("center", [0.0, 3.0])
def test_any_layout_of_the_updates_gives_the_same_gram_matrix(center):
    updates = normal(6, 900, center=center)
    exact = exact_distances(updates)
    for laid in (updates.T.contiguous().T, updates.repeat_interleave(2, 1)[:, ::2], updates.flip(0).flip(0)):
        assert torch.allclose(gram_of(laid).distances_squared(), exact, rtol=1e-4)
    assert torch.allclose(gram_of(updates[:1].expand(6, -1)).distances_squared(), torch.zeros(6, 6).double(), atol=1e-3)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 10), d=st.integers(1, 50))
def test_distances_in_one_pass(seed, n, d):
    updates, point = normal(n, d, seed), normal(1, d, seed + 1)[0]
    assert torch.allclose(kernels.distances_from(updates), updates.double().norm(dim=1), rtol=1e-6)
    apart = (updates.double() - point.double()).norm(dim=1)
    assert torch.allclose(kernels.distances_from(updates, point), apart, rtol=1e-5)


def test_distances_beyond_the_squares_of_float32():
    updates = normal(3, 1000)
    updates[1] = 3e38
    assert torch.allclose(kernels.distances_from(updates), updates.double().norm(dim=1), rtol=1e-6)
    apart = kernels.distances_from(updates, -updates[1])
    assert torch.allclose(apart, (updates.double() + updates[1].double()).norm(dim=1), rtol=1e-6)


def test_distances_from_named_rows_need_no_gram_matrix():
    def never() -> torch.Tensor:
        raise AssertionError("computed")

    updates = normal(4, 30)
    gram = Gram(never, 4, measure=lambda name: kernels.distances_from(updates))
    assert torch.allclose(gram.norms(), updates.double().norm(dim=1), rtol=1e-6)


def test_gram_is_computed_only_when_a_rule_looks():
    def never() -> torch.Tensor:
        raise AssertionError("computed")

    gram = Gram(never, 4).mix(torch.eye(4, dtype=torch.float64))
    assert gram.n == 4
    assert gram.affine(torch.ones(4) / 4).tolist() == [0.25] * 4 + [0]


def test_weights_of_the_wrong_length_are_refused():
    with pytest.raises(ContractError, match="expected weights on 3 updates"):
        gram_of(normal(3, 2)).affine(torch.ones(5))


@given(seed=st.integers(0, 10_000), n=st.integers(1, 20), used=st.integers(0, 20))
def test_weighted_sum(seed, n, used):
    updates, weights = normal(n, 30, seed), torch.zeros(n, dtype=torch.float64)
    weights[torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:used]] = 0.7
    assert torch.allclose(kernels.combine_rows(updates, weights).double(), weights @ updates.double(), atol=1e-4)


def test_sort_rows():
    block = normal(9, 100)
    assert torch.equal(kernels.sort_rows(block.clone()), block.sort(0).values)
    columns = block.T.contiguous()
    assert kernels.sort_rows(columns.T).data_ptr() == columns.data_ptr()  # in place where it can


def test_unusable_rows():
    updates = torch.ones(8, 4)
    updates[1, 2], updates[3, 0], updates[4, 3] = torch.nan, torch.inf, -torch.inf
    updates[5] = kernels.LARGEST  # its length is beyond float32, a sum of many such is not
    updates[6, 1] = kernels.LARGEST * 1.001
    updates[7, 0], updates[7, 1] = 3e38, -3e38  # which add up to 0
    assert kernels.unusable_rows(updates) == [1, 3, 4, 6, 7]
    assert kernels.unusable_rows(updates[5:6].expand(4096, -1)) == []
    assert updates[5].expand(4096, -1).sum(0).isfinite().all()


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-30, 1e-22, 1e-18, 1e-15, 1e10, 1e19, 1e33])
@pytest.mark.parametrize("zeros", [0, 2])
def test_inner_products_and_distances_keep_at_any_scale(scale, zeros):
    """Squares of 1e-25 are 0 in float32, and those of 1e20 infinite; rows of zeros are no sign of either."""
    updates = normal(7, 300, seed=1, center=0.5)
    updates[:zeros] = 0
    updates[4] = updates[3]
    updates *= scale
    exact = exact_distances(updates)
    gram = gram_of(updates, root=updates[5] / 2)
    assert torch.allclose(gram.distances_squared() / scale**2, exact / scale**2, rtol=1e-4)
    assert torch.allclose(kernels.distances_from(updates) / scale, updates.double().norm(dim=1) / scale, rtol=1e-5)
    away = (updates.double() - updates[5].double()).norm(dim=1)
    assert torch.allclose(kernels.distances_from(updates, updates[5]) / scale, away / scale, rtol=1e-5)
    assert torch.allclose(
        gram.distances_to("root") / scale, (updates - updates[5] / 2).double().norm(dim=1) / scale, rtol=1e-4
    )


@pytest.mark.parametrize("double", [False, True])
def test_plain_updates_cost_one_pass_in_float32(double, monkeypatch):
    """Zeros and copies, which free riders and malicious clients send, have no part in the fallback to float64."""
    updates = normal(9, 50, center=0)
    updates[2], updates[5] = 0, updates[4]
    if double:
        updates[7] *= 1e-25
    asked = []
    products = kernels._products
    monkeypatch.setattr(kernels, "_products", lambda *given: asked.append(given[3]) or products(*given))
    kernels.gram_matrix(updates, [updates[1]])
    assert (torch.float64 in asked) == double
    assert asked[0] == torch.float32


def test_column_blocks_cover_every_column_once():
    for n, d in ((1, 1), (50, 100_003), (5000, 700)):
        blocks = list(kernels.column_blocks(n, d))
        assert [column for block in blocks for column in range(block.start, block.stop)] == list(range(d))
        assert max(block.stop - block.start for block in blocks) * n * 4 <= max(kernels.BLOCK_BYTES, 256 * n * 4)


MEASURE = """
import sys, torch
torch.set_num_threads(1)
from tests.table import run
updates = torch.rand(40, 1_000_000)                      # 153 MiB
for text in sys.argv[1:]:
    run(text, updates[:, :5000].contiguous(), 5, root=updates[0, :5000])     # whatever is allocated once

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

open("/proc/self/clear_refs", "w").write("5")            # the peak so far, which a process has of its parent, is forgotten
before = peak()
for text in sys.argv[1:]:
    run(text, updates, 5, root=updates[0])
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="a peak can be started anew on Linux only")
@pytest.mark.slow
def test_a_rule_needs_no_more_memory_than_the_updates_and_one_block():
    """Every kind of rule, on 153 MiB of updates: the process grows by a few vectors of 4 MiB, never by a matrix."""
    rules = [
        "mean",
        "median",
        "krum",
        "multi_krum",
        "geometric_median",
        "centered_clipping",
        "nnm >> trimmed_mean",
        "clip >> mean",
        "fltrust",
    ]
    done = subprocess.run([sys.executable, "-c", MEASURE, *rules], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 40
