"""Scores of a membership inference: by brute force, by exact binomial tails, by simulation."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from fedguard.bench.running.inference.scores import headline
from fedguard.errors import InputError
from fedguard.metrics.membership import auc, membership, pool_membership


def drawn(
    members: int, others: int, *, shift: float = 1.0, levels: int | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Normal scores, the members' shifted, rounded to ``levels`` per unit; in random order."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(members + others) < members
    truth = truth[torch.randperm(members + others, generator=generator)]
    scores = torch.randn(members + others, generator=generator, dtype=torch.float64) + shift * truth
    return (scores if levels is None else (scores * levels).round() / levels), truth


def pairs(scores: Tensor, truth: Tensor) -> float:
    won = 0.0
    for member in scores[truth].tolist():
        for other in scores[~truth].tolist():
            won += 1.0 if member > other else 0.5 if member == other else 0.0
    return won / (int(truth.sum()) * int((~truth).sum()))


@pytest.mark.parametrize("levels", [None, 2])
def test_the_area_is_the_share_of_pairs_in_the_right_order(levels):
    scores, truth = drawn(40, 70, levels=levels)
    assert auc(scores, truth)["value"] == pytest.approx(pairs(scores, truth), abs=1e-12)
    assert auc(-scores, truth)["value"] == pytest.approx(1 - pairs(scores, truth), abs=1e-12)


def hanley_mcneil(area: float, m: int, n: int) -> float:
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    return math.sqrt((area * (1 - area) + (m - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)) / (m * n))


def test_the_interval_ends_where_the_area_lies_two_errors_away():
    scores, truth = drawn(50, 120)
    found = auc(scores, truth)
    for end in found["interval"]:
        assert abs(found["value"] - end) == pytest.approx(1.959964 * hanley_mcneil(end, 50, 120), rel=1e-5)


@pytest.mark.parametrize(("shift", "at_most"), [(0.0, 0.985), (1.0, 0.985), (2.5, 1.0)])
def test_the_interval_holds_the_true_area_in_about_95_of_100_and_more_often_near_1(shift, at_most):
    """Two normals a shift apart: the area is Phi(shift / sqrt 2). Three standard errors of 400 draws are .033."""
    area = 0.5 * (1 + math.erf(shift / 2))
    hits = 0
    for seed in range(400):
        low, high = auc(*drawn(30, 50, shift=shift, seed=seed))["interval"]
        hits += low <= area <= high
    assert 0.917 <= hits / 400 <= at_most


def test_a_perfect_score_is_not_certain():
    scores = torch.arange(30.0)
    low, high = auc(scores, scores >= 15)["interval"]
    assert high == 1.0 and 0.7 < low < 0.95
    more = torch.arange(3000.0)
    assert auc(more, more >= 1500)["interval"][0] > 0.99


def best_rate(scores: Tensor, truth: Tensor, one_in: int) -> float:
    """The largest true positive rate over all thresholds whose false positives are at most one in so many."""
    best = 0.0
    for threshold in [-math.inf, *scores.tolist()]:
        called = scores > threshold
        if int((called & ~truth).sum()) * one_in <= int((~truth).sum()):
            best = max(best, float(called[truth].double().mean()))
    return best


@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize(("others", "seed"), [(100, 0), (199, 1), (250, 2), (1000, 3)])
def test_the_rate_at_few_false_alarms_is_the_best_of_all_thresholds(levels, others, seed):
    scores, truth = drawn(80, others, levels=levels, seed=seed)
    found = membership(scores, truth)
    assert found["tpr_at_1_percent"]["value"] == best_rate(scores, truth, 100)
    if others >= 1000:
        assert found["tpr_at_01_percent"]["value"] == best_rate(scores, truth, 1000)


def test_one_percent_of_2900_is_29():
    """In floating point .01 * 2900 is a little less than 29."""
    others = torch.arange(2900.0)
    members = torch.tensor([2870.5, 2869.5])  # 29 and 30 non-members lie above
    scores, truth = torch.cat([members, others]), torch.arange(2902) < 2
    assert membership(scores, truth)["tpr_at_1_percent"]["value"] == 0.5


def test_ties_never_raise_the_rate():
    scores, truth = torch.ones(400), torch.arange(400) < 200
    found = membership(scores, truth)
    assert found["tpr_at_1_percent"]["value"] == 0.0 and found["auc"]["value"] == 0.5
    assert found["roc"][0] == [0.0, 0.0] and found["roc"][-1] == [1.0, 1.0]


def tail(k: int, n: int, p: float) -> float:
    """Pr[X >= k] for X ~ Binomial(n, p), summed exactly."""
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize("found", [0, 1, 7, 40])
def test_the_interval_of_a_rate_cuts_off_a_fortieth_on_either_side(found):
    """Clopper & Pearson: at the lower end as many or more have probability .025, at the upper end as many or fewer."""
    n = 40
    scores = torch.cat([torch.full((found,), 2.0), torch.zeros(n - found), torch.ones(100)])
    rate = membership(scores, torch.arange(n + 100) < n)["tpr_at_1_percent"]
    low, high = rate["interval"]
    assert rate["value"] == found / n
    assert tail(found, n, low) == pytest.approx(0.025, rel=1e-6) if found else low == 0.0
    assert 1 - tail(found + 1, n, high) == pytest.approx(0.025, rel=1e-6) if found < n else high == 1.0


@pytest.mark.parametrize(
    ("others", "one", "tenth"), [(99, False, False), (100, True, False), (999, True, False), (1000, True, True)]
)
def test_no_rate_without_the_non_members_to_resolve_it(others, one, tenth):
    found = membership(*drawn(20, others))
    for rate, there in ((found["tpr_at_1_percent"], one), (found["tpr_at_01_percent"], tenth)):
        assert (rate["value"] is not None) == there and ("why" in rate) != there
    if others == 999:
        assert found["tpr_at_01_percent"]["why"] == "expected 1,000 non-members or more; got 999."


def test_the_curve_is_that_of_all_thresholds():
    scores, truth = drawn(60, 400, levels=5)
    roc = membership(scores, truth)["roc"]
    assert len(roc) <= 26 and roc[0][0] == 0.0 and roc[-1] == [1.0, 1.0]
    for false, true in roc:
        allowed = round(false * 400)
        rates = [
            float((scores[truth] > threshold).double().mean())
            for threshold in [-math.inf, *scores[~truth].tolist()]
            if int((scores[~truth] > threshold).sum()) <= allowed
        ]
        assert true == max(rates)


def test_what_is_no_number_finds_nobody():
    scores, truth = drawn(200, 200, shift=20.0)
    blind = torch.full_like(scores, torch.nan)
    found = membership(blind, truth)
    assert (found["auc"]["value"], found["tpr_at_1_percent"]["value"], found["not_numbers"]) == (0.5, 0.0, 400)
    half = torch.where(torch.arange(400) < 200, scores, blind)
    assert membership(half, truth)["tpr_at_1_percent"]["value"] == float(truth[:200].sum()) / 200


def test_infinite_scores_are_ranked():
    scores, truth = torch.tensor([torch.inf, 0.0, -torch.inf, 1.0]), torch.tensor([True, True, False, False])
    assert auc(scores, truth)["value"] == 0.75


def test_with_one_kind_alone_there_is_no_figure_and_a_reason():
    for truth in (torch.ones(5, dtype=torch.bool), torch.zeros(5, dtype=torch.bool)):
        found = membership(torch.arange(5.0), truth)
        assert found["auc"]["value"] is None and found["auc"]["why"].startswith("expected some of both kinds")
        assert found["tpr_at_1_percent"]["value"] is None and found["roc"] == []


def test_targets_and_seeds_together_have_non_members_enough():
    """None of three has 1,000; the threshold of all is that of their candidates in one list."""
    parts = [drawn(300, 400, seed=seed) for seed in range(3)]
    found = [membership(scores, truth) for scores, truth in parts]
    assert all(one["tpr_at_01_percent"]["value"] is None for one in found)
    together = pool_membership(json.loads(json.dumps(found)))
    everybody, truth = (torch.cat(kind) for kind in zip(*parts, strict=True))
    assert (together["members"], together["non_members"]) == (900, 1200)
    assert together["tpr_at_01_percent"]["value"] == best_rate(everybody, truth, 1000)
    assert together["auc"]["value"] == pytest.approx(auc(everybody, truth)["value"], abs=1e-9)
    assert headline("membership", found)["tpr_01"] == together["tpr_at_01_percent"]["value"]
    assert headline("membership", found)["tpr"] == best_rate(everybody, truth, 100)


def test_what_is_no_number_or_infinite_stays_lowest_or_highest_in_a_pool():
    truth = torch.tensor([True, True, False, False])
    one = membership(torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0]), truth)
    two = json.loads(json.dumps(pool_membership([one, one]), allow_nan=False))
    assert two["not_numbers"] == 2
    assert two["scores"]["members"] == [-1e308, -1e308, 1e308, 1e308]
    assert two["auc"]["value"] == one["auc"]["value"]


def test_the_result_is_json():
    found = membership(*drawn(1000, 1000))
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("truth", [torch.ones(3, dtype=torch.bool), torch.ones(4)])
def test_scores_and_truth_must_fit(truth):
    with pytest.raises(InputError, match="scores: expected"):
        membership(torch.zeros(4), truth)
