"""Epsilon, accuracy and leakage side by side."""

from __future__ import annotations

import pytest

from fedguard.bench.results.trilemma import trilemma
from fedguard.errors import ConfigError
from fedguard.metrics.figures import FIGURES


def test_points_take_the_worst_of_each_kind():
    def row(attack, goal, epsilon, seed, **figures):
        return {
            **dict.fromkeys(FIGURES), "attack": attack, "goal": goal, "defense": "mean", "noise": str(epsilon), "seed": seed,
            "status": "ok", "epsilon": epsilon, **figures,
        }  # fmt: skip

    rows = []
    for seed in (0, 1):
        rows += [
            row("none", None, 2.0, seed, final_accuracy=0.9),
            row("ipm", "untargeted", 2.0, seed, final_accuracy=0.5 + 0.1 * seed),
            row("a", "reconstruction", 2.0, seed, recovered=0.1, final_accuracy=0.9),
            row("b", "reconstruction", 2.0, seed, recovered=0.3, final_accuracy=0.9),
            row("none", None, None, seed, final_accuracy=0.95),
            row("b", "reconstruction", None, seed, recovered=1.0, final_accuracy=0.95),
        ]
    without, strong = trilemma("t", rows, ["noise"]).points
    assert (without.epsilon, strong.epsilon) == (None, 2.0)
    assert without.accuracy.attack == "none" and without.leakage["recovered"].estimate.mean == 1.0
    assert strong.accuracy.attack == "ipm" and strong.accuracy.estimate.mean == pytest.approx(0.55)
    assert strong.leakage["recovered"].attack == "b" and "membership_auc" not in strong.leakage
    text = str(trilemma("t", rows, ["noise"]))
    assert "55.0" in text and "30.0" in text and "over epsilon" in text


def test_a_run_without_attacks_on_privacy_has_none():
    row = {**dict.fromkeys(FIGURES), "attack": "none", "goal": None, "defense": "mean", "status": "ok", "epsilon": None}
    with pytest.raises(ConfigError, match="expected attacks on the clients' privacy"):
        trilemma("t", [row], [])


def test_a_membership_without_a_regression_beside_it_is_not_the_last_word():
    """Said of the points that lack it, wherever leakage is summed up; nothing is said where none asks who was a member."""

    def row(defense, attack, goal, **figures):
        return {
            **dict.fromkeys(FIGURES), "attack": attack, "goal": goal, "defense": defense, "seed": 0, "status": "ok", **figures,
        }  # fmt: skip

    weak = [row("mean", "lira(shadows=8)", "membership", membership_auc=0.52)]
    strong = [
        row("median", "lira", "membership", membership_auc=0.5),
        row("median", "least_squares(ridge=0.1)", "membership", membership_auc=0.9),
    ]
    found = trilemma("t", weak + strong, [])
    assert {point.defense: point.unread for point in found.points} == {"mean": True, "median": False}
    assert "In 1 of 2 points" in str(found).replace("\n", " ") and "Add least_squares to matrix.attack" in found.note
    assert "of 1 of" not in trilemma("t", weak, []).note != ""
    assert trilemma("t", strong, []).note == ""
    assert trilemma("t", [row("mean", "dlg", "reconstruction", recovered=1.0)], []).note == ""
    refused = row("mean", "least_squares", "membership") | {"status": "refused"}
    assert trilemma("t", [*weak, refused], []).note
