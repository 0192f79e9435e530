"""The charts of one run as data: the same figures as the matrix, the records and the curves; gaps are told."""

from __future__ import annotations

import pytest

from fedguard.app.charts.curves import axes, class_rows, classes, curves, points


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
