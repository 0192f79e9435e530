"""The charts of privacy as data: what is drawn is what was measured, at the place where it belongs."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from fedguard.app.charts.privacy import bounds, frontier, roc
from fedguard.bench.audits.cells import CellAudit
from fedguard.bench.results.disclosure import MembershipResult, TrialPosition
from fedguard.bench.results.trilemma import Point, Trilemma, WorstAttack
from fedguard.metrics.figures import FIGURES
from fedguard.metrics.membership import membership
from fedguard.privacy.audit import Audit, Bound, Check
from fedguard.rng import Rng

PLACE = TrialPosition(setting="noise = none", attack="loss", defense="mean", seed=0)


def rows_of(chart):
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def point(epsilon, accuracies, leak=None, defense="mean"):
    leakage = {} if leak is None else {"membership_auc": WorstAttack("loss", FIGURES["membership_auc"].estimate(leak))}
    return Point(
        f"epsilon = {epsilon}",
        defense,
        epsilon,
        WorstAttack("ipm", FIGURES["final_accuracy"].estimate(accuracies)),
        leakage,
    )


def trilemma(*points):
    return Trilemma("run", points)


def test_the_frontier_shows_means_and_intervals_in_percent():
    chart = frontier(trilemma(point(1.0, [0.5, 0.6, 0.7]), point(10.0, [0.8]), point(None, [0.9, 0.9])))
    rows = {row["setting"]: row for row in rows_of(chart) if row.get("figure") == "final_accuracy"}
    first = rows["epsilon = 1.0"]
    half = 4.302652729911275 * 0.1 / math.sqrt(3) / 0.24  # t of 2 degrees of freedom at 97.5 %, on the logit scale
    assert first["mean"] == pytest.approx(60)
    assert first["high"] == pytest.approx(100 / (1 + math.exp(-(math.log(1.5) + half))))
    assert first["low"] == pytest.approx(100 / (1 + math.exp(-(math.log(1.5) - half))))
    assert rows["epsilon = 10.0"]["low"] == rows["epsilon = 10.0"]["high"] == pytest.approx(80)
    assert "too few seeds" in rows["epsilon = 10.0"]["said"]
    assert first["attack"] == "ipm"


def test_points_stand_at_their_epsilon_and_those_without_guarantee_to_the_right_of_all():
    chart = frontier(trilemma(point(1.0, [0.5]), point(100.0, [0.8]), point(None, [0.9])))
    x = {row["hidden"]: row["x"] for row in rows_of(chart) if row.get("figure") == "final_accuracy"}
    assert x["1 (one epsilon)"] == pytest.approx(1)
    assert x["100 (one epsilon)"] == pytest.approx(100)
    assert x["no guarantee"] > 300
    panel = chart.to_dict()["vconcat"][0]
    line = next(layer for layer in panel["layer"] if layer["mark"]["type"] == "line")
    assert "datum.proven" in str(line["transform"])  # no line leads to a point without guarantee


def test_defenses_at_one_epsilon_stand_apart_but_near_it():
    chart = frontier(trilemma(*(point(eps, [0.5], defense=name) for eps in (1.0, 10.0) for name in ("mean", "median"))))
    x = [row["x"] for row in rows_of(chart) if row.get("hidden", "").startswith("10 ")]
    assert len(set(x)) == 2
    assert all(9 < one < 11 for one in x)


def test_epsilons_of_records_and_of_clients_are_told_apart():
    units = {"epsilon = 1.0": "record", "epsilon = 10.0": "client"}
    chart = frontier(trilemma(point(1.0, [0.5]), point(10.0, [0.8])), units)
    assert {row["setting"]: row["unit"] for row in rows_of(chart) if "unit" in row} == units
    line = next(layer for layer in chart.to_dict()["vconcat"][0]["layer"] if layer["mark"]["type"] == "line")
    assert line["encoding"]["detail"]["field"] == "unit"


def test_an_epsilon_of_zero_and_a_run_without_any_have_a_place():
    rows = rows_of(frontier(trilemma(point(0.0, [0.1]), point(3.0, [0.5]), point(None, [0.9]))))
    x = {row["hidden"]: row["x"] for row in rows if "hidden" in row}
    assert 0 < x["0 (one epsilon)"] < x["3 (one epsilon)"] < x["no guarantee"]
    assert rows_of(frontier(trilemma(point(None, [0.9]))))


def test_leakage_stands_below_in_panels_of_its_own():
    panels = frontier(trilemma(point(1.0, [0.5], leak=[0.6, 0.7]), point(None, [0.9]))).to_dict()["vconcat"]
    assert len(panels) == 2
    leaks = [
        row for row in rows_of(frontier(trilemma(point(1.0, [0.5], leak=[0.6, 0.7])))) if row.get("attack") == "loss"
    ]
    assert leaks[0]["mean"] == pytest.approx(0.65)


def gaussian(shift, seed, size=4000, target=0):
    """Members score N(shift, 1), others N(0, 1)."""
    draw = Rng(seed).child("scores", target).numpy()
    scores = torch.tensor([*(shift + draw.standard_normal(size)), *draw.standard_normal(size)])
    truth = torch.arange(2 * size) < size
    return MembershipResult(place=replace(PLACE, seed=seed), target=target, score=membership(scores, truth))


def test_the_mean_curve_is_that_of_two_gaussians():
    """TPR = Phi(shift - z) at FPR = 1 - Phi(z)."""
    shift, normal = 1.5, NormalDist()
    rows = rows_of(roc([gaussian(shift, seed, target=target) for seed in range(3) for target in range(2)]))
    mean = [row for row in rows if row["kind"] == "mean"]
    assert mean[0]["false"] == pytest.approx(1 / 4000)
    assert mean[-1]["false"] == pytest.approx(1)
    assert mean[-1]["true"] == 1
    for row in mean[8:-1]:  # where at least a few false alarms were to be seen
        expected = normal.cdf(shift + normal.inv_cdf(row["false"]))
        assert row["true"] == pytest.approx(expected, abs=0.06)
        assert row["low"] <= row["true"] <= row["high"]


def test_the_mean_is_over_targets_and_then_over_seeds():
    curves = {0: [[[0, 0], [0.1, 0.2], [1, 1]], [[0, 0], [0.1, 0.6], [1, 1]]], 1: [[[0, 0.1], [0.1, 0.3], [1, 1]]]}
    curves[2] = [[[0, 0], [0.1, 0.35], [1, 1]]]
    targets = [
        MembershipResult(place=replace(PLACE, seed=seed), target=number, score={"roc": curve})
        for seed, its in curves.items()
        for number, curve in enumerate(its)
    ]
    rows = [row for row in rows_of(roc(targets)) if row["kind"] == "mean"]
    assert rows[0]["false"] == pytest.approx(0.1)
    for row in rows:  # between recorded points as a coin between their thresholds does
        way = (row["false"] - 0.1) / 0.9
        first, second, other, third = (start + way * (1 - start) for start in (0.2, 0.6, 0.3, 0.35))
        assert row["true"] == pytest.approx(((first + second) / 2 + other + third) / 3)
    half = 4.302652729911275 * 0.05 / math.sqrt(3) / (0.35 * 0.65)  # of 0.4, 0.3 and 0.35, on the logit scale
    assert rows[0]["high"] == pytest.approx(1 / (1 + math.exp(-(math.log(0.35 / 0.65) + half))))
    assert 0 < rows[0]["low"] < rows[0]["true"]


def test_one_seed_has_no_band_and_each_attack_and_defense_a_panel_with_its_diagonal():
    other = replace(gaussian(1.0, 0), place=replace(PLACE, defense="median"))
    rows = rows_of(roc([gaussian(1.0, 0), other]))
    assert all("too few seeds" in row["said"] for row in rows if row["kind"] == "mean")
    chance = {(row["panel"], row["false"]): row["true"] for row in rows if row["kind"] == "chance"}
    assert len(chance) == 4
    assert all(false == true for (_, false), true in chance.items())


def test_scores_that_find_nobody_can_be_drawn():
    score = {"roc": [[0, 0.0], [1, 0.0]]}
    assert rows_of(roc([MembershipResult(place=PLACE, target=0, score=score)]))


def audited(bound, claimed, verdict, subject="noise"):
    return CellAudit(
        cells=("a",),
        audit=Audit(
            subject=subject,
            claimed=claimed,
            claim="",
            bound=Bound(method="gdp_split", epsilon=bound, delta=1e-5, kind="bound", confidence=0.95),
            canaries=100,
            refuted=False,
            checks=(Check(name="noise", p_value=0.5, words=""),),
            verdict=verdict,
            words="words",
        ),
    )


def test_bounds_stand_beside_claims_with_the_verdict():
    audits = [
        audited(1.0, 2.0, "consistent"),
        audited(5.0, 2.0, "violated"),
        audited(math.inf, None, "not judged", "x"),
    ]
    rows = {row["audit"]: row for row in rows_of(bounds(audits))}
    assert set(rows) == {"noise (1)", "noise (2)", "x"}
    assert (rows["noise (1)"]["bound"], rows["noise (1)"]["claim"]) == (1.0, 2.0)
    assert rows["noise (2)"]["bound"] > rows["noise (2)"]["claim"]
    assert rows["noise (2)"]["said"] == "violated"
    assert rows["x"]["bound"] is None
    assert "without end" in rows["x"]["said"]
    domain = bounds(audits).to_dict()["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert domain[0] == 0
    assert domain[1] > 5
