"""The charts of one run as data: the same figures as the matrix, the records and the curves; gaps are told."""

from __future__ import annotations

import pytest

from fedguard.app.charts.curves import axes, class_rows, classes, curves, points
from fedguard.app.charts.heatmap import heatmap, positions
from fedguard.bench.results.breakdown import WORST
from fedguard.bench.results.matrix import matrix


def row(attack, defense, seed, value, status="ok", **more):
    figures = {"final_accuracy": value, "kappa": None if value is None else 10 * value, "accuracy_drop": None}
    reason = None if status == "ok" else f"{status} since"
    found = {"attack": attack, "defense": defense, "seed": seed, "cell": f"{attack}/{defense}", "goal": None}
    return {**found, "status": status, "reason": reason, **figures, **more}


ROWS = [
    row("none", "mean", 0, 0.9),
    row("none", "mean", 1, 0.8),
    row("alie", "mean", 0, 0.5),
    row("alie", "mean", 1, 0.3),
    row("ipm", "mean", 0, 0.1),
    row("ipm", "mean", 1, None, "failed"),
    row("none", "krum", 0, None, "refused"),
    row("none", "krum", 1, None, "refused"),
    row("alie", "krum", 0, None, "refused"),
    row("alie", "krum", 1, None, "refused"),
    row("ipm", "krum", 0, None, "missing"),
    row("ipm", "krum", 1, None, "missing"),
]


def squares(rows=ROWS, figure="final_accuracy"):
    return {(one["attack"], one["defense"]): one for one in positions(rows, figure)}


def datasets(chart):
    return [point for points in chart.to_dict()["datasets"].values() for point in points]


def test_a_square_is_the_mean_with_its_interval_in_percent():
    one = squares(
        [row("none", "mean", seed, value, cell="alie/mean") for seed, value in ((0, 0.3), (1, 0.4), (2, 0.5))]
    )
    one = one["none", "mean"]
    assert one["mean"] == pytest.approx(40)
    # Student's t on the logit scale: logit(0.4) ± 4.303 * 0.1 / sqrt(3) / (0.4 * 0.6) = -0.405 ± 1.035: -20.9 and +25.2
    assert one["figure"] == "40.0 [19.1, 65.2] %"
    assert (one["label"], one["spread"]) == ("40.0", "[19.1, 65.2]")


def test_two_seeds_have_no_interval_and_say_so():
    one = squares()["alie", "mean"]
    assert (one["figure"], one["spread"]) == ("40.0 % (too few seeds for an interval)", "")
    assert (one["seeds"], one["status"], one["cell"]) == (2, "ok", "alie/mean")


def test_squares_hold_the_figures_of_the_matrix():
    entries = matrix("", ROWS, [], "final_accuracy").blocks[""]
    for (attack, defense), one in squares().items():
        if attack != WORST:
            estimate = entries[attack][defense].estimate
            assert one["mean"] == (None if estimate is None else pytest.approx(100 * estimate.mean))


def test_what_has_no_figure_has_its_word_and_its_reason():
    found = squares()
    assert (found["none", "krum"]["label"], found["none", "krum"]["reason"]) == ("refused", "refused since")
    assert found["ipm", "mean"]["label"] == "failed"  # one seed of two: the other's value is no mean
    assert found["ipm", "krum"]["label"] == "missing"
    assert all(one["mean"] is None for (attack, _), one in found.items() if attack == "ipm")


def test_the_worst_row_is_an_attack_that_was_measured_and_says_what_may_be_worse():
    worst = squares()[WORST, "mean"]
    assert (worst["by"], worst["cell"], worst["mean"]) == ("alie", "alie/mean", pytest.approx(40))
    assert worst["label"] == "40.0*"
    assert worst["reason"] == "the worst of 1 attacks that were measured; 1 failed or not run, which may be worse"
    nothing = squares()[WORST, "krum"]
    assert (nothing["mean"], nothing["label"]) == (None, "missing")


def test_the_worst_is_the_highest_where_less_is_better():
    rows = [row("a", "mean", 0, 0.1), row("b", "mean", 0, 0.7)]
    assert squares(rows, "kappa")[WORST, "mean"]["by"] == "b"
    assert squares(rows, "final_accuracy")[WORST, "mean"]["by"] == "a"


def test_one_attack_has_no_worst_row():
    assert WORST not in {attack for attack, _ in squares(ROWS[:4])}


def test_one_seed_has_no_interval_and_says_so():
    one = squares(ROWS[:1])["none", "mean"]
    assert (one["figure"], one["spread"]) == ("90.0 % (too few seeds for an interval)", "")


def test_what_rounding_leaves_is_zero():
    one = squares([row("none", "mean", seed, 1e-17 * seed) for seed in (1, 2, 3)], "kappa")["none", "mean"]
    assert (one["label"], one["spread"]) == ("0", "[0, 0]")


def test_writing_is_white_on_dark_colors_alone():
    rows = [
        row("a", "mean", 0, 0.02),
        row("b", "mean", 0, 0.5),
        row("c", "mean", 0, 0.99),
        row("d", "mean", 0, None, "failed"),
    ]
    assert [squares(rows)[name, "mean"]["dark"] for name in "abcd"] == [True, False, True, False]


def test_the_heatmap_draws_every_square_and_none_for_no_rows():
    drawn = datasets(heatmap(ROWS, "final_accuracy"))
    assert len(drawn) == 8
    assert heatmap([], "final_accuracy").to_dict()["layer"]


def test_colors_point_the_same_way_for_every_figure():
    def scale(figure):
        return heatmap(ROWS, figure).to_dict()["layer"][0]["encoding"]["color"]["scale"]

    assert scale("final_accuracy")["reverse"] is False and scale("kappa")["reverse"] is True
    assert scale("final_accuracy")["domain"] == [0, 100] and scale("kappa")["domain"] == [0, pytest.approx(8.5)]


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
