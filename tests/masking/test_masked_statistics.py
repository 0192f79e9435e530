"""Running statistics in masked sums: equal to plain sums up to quantization, and no client's own reaches the server."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedguard.architectures.masking import moments
from fedguard.architectures.statistics import RunningStatistics
from fedguard.architectures.statistics_checks import _why_not_masked
from fedguard.bench.running.check import _statistics
from fedguard.contracts import ReceivedRound, SentRound, StatisticsFate, StatisticsLayout
from fedguard.statistics.average import Average
from fedguard.statistics.pooled import Pooled
from fedguard.statistics.weighted import Weighted
from tests.architectures.test_running_statistics import LYING, cell, refusal, reports

LAYOUT = StatisticsLayout((2, 1), torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 1.0]), 2)
BEFORE = torch.tensor([0.5, -2.0, 4.0, 1e-4, 300.0, 1e4])
EIGHT = {"clients": {"total": 8}}
FULL = {"protocol": {"secure_aggregation": "full"}}


def drawn(n: int) -> torch.Tensor:
    """``[n, 6]``: statistics within a few standard deviations of `BEFORE`, though these differ by a factor of 1e8."""
    draw = torch.Generator().manual_seed(3)
    scale = torch.tensor([2.0, 1e-2, 1.0, 1.0, 100.0, 1.0])
    near = BEFORE + scale * torch.randn(n, 6, generator=draw) * ~LAYOUT.variances
    return near * torch.where(LAYOUT.variances, 0.5 + torch.rand(n, 6, generator=draw), torch.ones(()))


@pytest.mark.parametrize("fate", [Weighted(), Average(), Pooled()])
def test_the_mean_of_moments_gives_the_statistics_that_the_server_would_combine(fate):
    rows, sizes = drawn(4), torch.tensor([1.0, 5.0, 40.0, 3.0], dtype=torch.float64)
    weights = sizes if fate.by_samples else torch.ones(4, dtype=torch.float64)
    sent = torch.stack([moments.to_moments(row, BEFORE, fate, LAYOUT, True) for row in rows])
    assert (sent.abs() < 8).all()
    found = moments.from_moments(weights @ sent.double() / weights.sum(), BEFORE, fate, LAYOUT)
    assert torch.allclose(found, fate.combine(rows, sizes, LAYOUT), rtol=1e-4, atol=1e-6)


def test_an_honest_client_cuts_its_moments_and_a_malicious_one_does_not():
    far = BEFORE * 1000 + 50
    for fate in (Weighted(), Pooled()):
        assert moments.to_moments(far, BEFORE, fate, LAYOUT, True).abs().max() <= 8
        assert moments.to_moments(far, BEFORE, fate, LAYOUT, False).abs().max() > 100
    lost = far.clone()
    lost[3] = torch.inf
    assert not moments.to_moments(lost, BEFORE, Weighted(), LAYOUT, True).isfinite().all()


@pytest.mark.parametrize("fate", ["weighted", "average", "pooled"])
@pytest.mark.parametrize("mode", ["full", {"groups": 2}])
def test_masked_statistics_are_the_plain_ones_up_to_quantization(fate, mode):
    """Rounding moves the mean of n moments by at most 1 / S; a moment is in units of standard deviations and variances."""
    (setup, plain), (_, masked) = (
        reports(fate, **EIGHT, **more) for more in ({}, {"protocol": {"secure_aggregation": mode}})
    )
    step = 8 / (2**19 - 1) * (9 if fate == "pooled" else 1)
    before = setup.task.statistics.initial
    layout = setup.task.statistics
    for one, other in zip(plain, masked, strict=True):
        scale = before.clone()
        scale[~layout.variances] = before[layout.variances].sqrt()
        # The second round starts from statistics that the first has rounded
        assert ((one.statistics - other.statistics).abs() <= 4 * step * scale.clamp(min=1)).all()
        assert not torch.equal(one.statistics, other.statistics)
        before = other.statistics


def test_the_server_combines_sums_and_never_one_client_s_statistics():
    """A fault that this finds: the server reads the wire."""
    setup, _ = reports("weighted", **EIGHT, **FULL)
    s = setup.task.statistics.size
    own = {client: torch.full((s,), torch.nan) for client in range(8)}
    sent = SentRound(1, torch.zeros(5), torch.zeros(8, 5), tuple(range(8)), statistics=own)
    received = ReceivedRound(
        sent.updates, (tuple(range(8)),), None, 0, tuple(range(8)), sent, moments=(torch.full((s,), 8.0).double(), 4.0)
    )
    running = RunningStatistics(setup)
    running.settle(received, 1)
    found = running.for_evaluation(torch.zeros(setup.task.dim))
    # Moments of 2 from means 0 and variances 1
    assert torch.allclose(found, torch.full((s,), 2.0), atol=1e-4)
    running.settle(replace(received, moments=None), 2)
    assert torch.equal(running.for_evaluation(torch.zeros(setup.task.dim)), found)


def test_clients_that_drop_out_are_in_no_sum_of_statistics():
    dropout = {"secure_aggregation": "full", "dropout": {"rate": 0.25}, "colluding": 0.0}
    _, plain = reports("average", clients={"total": 12}, protocol={"dropout": {"rate": 0.25}})
    _, masked = reports("average", clients={"total": 12}, protocol=dropout)
    assert masked[0].masked.survivors < 12
    assert torch.allclose(plain[0].statistics, masked[0].statistics, atol=1e-4)


def test_a_lie_under_masks_moves_a_variance_by_a_factor_of_8_in_a_round_at_most():
    changes = {**LYING, "clients": {"total": 8, "malicious": 1}, **FULL, "attack": "statistics_lie(factor=10000.0)"}
    setup, found = reports("weighted", **changes)
    variances, before = setup.task.statistics.variances, setup.task.statistics.initial
    for report in found:
        factor = (report.statistics[variances] + 1e-5) / (before[variances] + 1e-5)
        assert (factor > 7.9).all() and (factor <= 8.0001).all()
        before = report.statistics


class Own(StatisticsFate):
    """A fate of somebody's own, which says nothing of sums."""

    name = "own"


@pytest.mark.parametrize(
    ("fate", "why"),
    [
        ({"fate": "weighted", "rule": "median"}, "the rule median compares each client's running statistics"),
        ("recomputed", "when the session of secure_aggregation: full is over"),
    ],
)
def test_what_needs_more_than_sums_is_refused_under_masks(fate, why):
    said = refusal(training={"statistics": fate}, **EIGHT, **FULL)
    assert why in said and "weighted, average or pooled" in said


def test_a_fate_that_says_nothing_of_sums_and_sums_that_wrap_are_refused():
    made = cell(**EIGHT, **FULL)
    (said,) = _why_not_masked(replace(made, statistics=Own()), [4] * 8, "clients send")
    assert "own does not say what of them adds up" in said
    assert not list(_why_not_masked(made, [4] * 8, "clients send"))
    (said,) = _why_not_masked(made, [2**29] * 8, "clients send")
    assert "do not fit their block" in said and "ring of 32 bits" in said


def test_check_says_how_statistics_travel_under_masks():
    said = _statistics(cell(**EIGHT, **FULL))
    assert "the server sees their sums alone: one moment of the mean of 8 is off by 2e-06" in said
    assert "cut at 8 standard deviations" in said
    assert "Under masks" not in _statistics(cell(**EIGHT))
