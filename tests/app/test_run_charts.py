"""The charts of one run as data: the same figures as the matrix, the records and the curves; gaps are told."""

from __future__ import annotations

import pytest

from fedguard.app.charts.breakdown import breakdown, has_gaps
from fedguard.app.charts.breakdown import points as breakdown_points
from fedguard.app.charts.curves import axes, class_rows, classes, curves, points
from fedguard.bench.results.breakdown import breakdown as broken_down


def row(attack, defense, seed, value, status="ok", **more):
    figures = {"final_accuracy": value, "kappa": None if value is None else 10 * value, "accuracy_drop": None}
    reason = None if status == "ok" else f"{status} since"
    found = {"attack": attack, "defense": defense, "seed": seed, "cell": f"{attack}/{defense}", "goal": None}
    return {**found, "status": status, "reason": reason, **figures, **more}


def datasets(chart):
    return [point for points in chart.to_dict()["datasets"].values() for point in points]


def record(seed, accuracy, backdoor=None, classes=(0.5, None), loss=(2.0, 1.0)):
    curve = {"round": [1, 2], "accuracy": accuracy, "backdoor": backdoor or [None, None], "loss": list(loss)}
    return {"seed": seed, "status": "ok", "result": {"curve": curve, "class_accuracy": list(classes)}}


def test_curves_hold_every_evaluation_of_every_seed_and_the_clean_ones():
    chart = curves([record(0, [0.1, 0.2]), record(1, [0.3, 0.4])], [record(0, [0.9, 0.95])])
    assert sorted(point["accuracy"] for point in datasets(chart)) == pytest.approx([10, 20, 30, 40, 90, 95])


def test_a_curve_is_drawn_over_time_where_all_that_are_shown_have_one():
    timed, untimed = record(0, [0.1, 0.2]), record(1, [0.3, 0.4])
    timed["result"]["curve"] |= {"updates": [8, 16], "seconds": [1.5, 4.0], "bytes_up": [100, 200]}
    assert axes([timed]) == ["round", "updates", "seconds", "bytes_up"] and axes([timed, untimed]) == ["round"]
    assert points(timed, "accuracy", "seconds")[1] == {"seconds": 4.0, "accuracy": 20.0, "seed": "0"}
    assert [point["seconds"] for point in datasets(curves([timed], over="seconds"))] == [1.5, 4.0]


def test_what_was_not_evaluated_is_no_point():
    assert points(record(0, [0.1, 0.2], [None, 0.7]), "backdoor") == [{"round": 2, "backdoor": 70.0, "seed": "0"}]
    assert points(record(0, [0.1, 0.2], loss=(None, 1.5)), "loss") == [{"round": 2, "loss": 1.5, "seed": "0"}]
    assert points({"seed": 0, "status": "failed", "result": None}, "accuracy") == []


def test_classes_have_means_with_intervals_within_0_and_100():
    first, second = class_rows(
        [record(seed, [0, 0], classes=(value, None)) for seed, value in enumerate((0.98, 0.5, 0.62))]
    )
    assert first["mean"] == pytest.approx(70)
    assert 0 < first["low"] < 70 < first["high"] < 100  # Student's would end at 132 %
    assert first["figure"].startswith("70.0 [") and first["figure"].endswith("] %")
    assert second["figure"] == "no test examples"
    assert classes([record(0, [0, 0])]).to_dict()["layer"]


def swept(f, attack, value, seed, status="ok"):
    return row(attack, "mean", seed, value, status, **{"f": f, "cell": f"{f}{attack}"})


def test_breakdown_marks_what_has_no_figure_at_the_foot():
    rows = [swept("1", "alie", value, seed) for seed, value in ((0, 0.8), (1, 0.6))]
    rows += [swept("2", "alie", None, seed, "refused") for seed in (0, 1)]
    found = broken_down("x", rows, [(0.9, 0.1)] * 4, ["f"], "f")
    first, second = [point for point in breakdown_points(found, "") if point["attack"] == "alie"]
    assert (first["mean"], first["foot"]) == (pytest.approx(70), None)
    assert first["figure"] == "70.0 %"
    assert (first["low"], first["high"]) == (None, None)
    assert has_gaps(found)
    assert (second["mean"], second["foot"], second["figure"]) == (None, 0.0, "refused")
    assert len(datasets(breakdown(found))) == 4  # the curve, and the worst of the attacks


def test_breakdown_draws_both_ends_of_an_interval_that_fits_and_none_where_there_is_one_seed():
    rows = [swept(f, "alie", value, seed) for f in "12" for seed, value in enumerate((0.70, 0.71, 0.72))]
    found = broken_down("x", rows, [(0.9, 0.1)] * 6, ["f"], "f")
    point = breakdown_points(found, "")[0]
    half = (
        4.303 / 3**0.5
    )  # Student's t for three values a point apart: so close together that the logit hardly bends it
    assert (point["low"], point["high"]) == (pytest.approx(71 - half, abs=0.1), pytest.approx(71 + half, abs=0.1))
    assert not has_gaps(found)
    one = broken_down("x", [row for row in rows if row["seed"] == 0], [(0.9, 0.1)] * 2, ["f"], "f")
    assert breakdown_points(one, "")[0]["low"] is None


def test_defenses_stand_beside_each_other_around_the_value():
    rows = [{**swept(f, "alie", 0.5, 0), "defense": name} for f in "12" for name in ("mean", "krum", "median")]
    points = breakdown_points(broken_down("x", rows, [None] * 6, ["f"], "f"), "")
    assert {(point["defense"], point["beside"]) for point in points} == {("mean", -1.0), ("krum", 0.0), ("median", 1.0)}
    assert {point["position"] for point in points} == {1.0, 2.0}


def test_breakdown_runs_from_left_to_right_in_the_order_of_the_suite():
    rows = [swept(alpha, "alie", 0.5, 0) for alpha in ("100", "1", "0.1")]
    chart = breakdown(broken_down("x", rows, [None] * 3, ["f"], "f")).to_dict()
    scale = chart["spec"]["layer"][0]["encoding"]["x"]["scale"]
    assert (scale["type"], scale["reverse"], scale["domain"]) == ("log", True, [0.1, 100])
