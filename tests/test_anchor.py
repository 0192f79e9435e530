"""Orderings that any sound benchmark must reproduce; it runs examples/anchor.yaml. Margins are wide: the order is the test.

`make test-slow` takes three seeds, `make test-slow ANCHOR_SEEDS=1` one and half of the rounds.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import fmean

import pytest

import fedguard as fg

pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[1] / "examples" / "anchor.yaml"
CHANCE = 0.11  # the largest class among 360 test images


@pytest.fixture(scope="module")
def accuracy(tmp_path_factory):
    """Mean final accuracy by partition, attack and defense."""
    seeds = os.environ.get("ANCHOR_SEEDS", "3")
    settings = [f"seeds={seeds}", f"training.rounds={100 if seeds == '1' else 200}"]
    run = fg.run(SUITE, store=tmp_path_factory.mktemp("runs"), settings=settings)
    assert not run.with_status("failed") and not run.with_status("refused")
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in run.rows():
        found.setdefault((row["task.partition"], row["attack"], row["defense"]), []).append(row["final_accuracy"])
    return {position: fmean(values) for position, values in found.items()}


def worst(accuracy, partition, defense):
    return min(
        value
        for (where, attack, rule), value in accuracy.items()
        if (where, rule) == (partition, defense) and attack != "none"
    )


def test_one_client_a_million_times_too_long_destroys_the_mean_alone(accuracy):
    assert accuracy["iid", "huge_value(factor=-1e+06)", "mean"] <= CHANCE
    assert accuracy["iid", "huge_value(factor=-1e+06)", "trimmed_mean"] > 0.9
    assert accuracy["label_sorted", "huge_value(factor=-1e+06)", "mean"] <= CHANCE


def test_robustness_has_a_price_where_clients_differ(accuracy):
    """Label-sorted, nobody attacks: mean ~ centred clipping ~ geometric median >> trimmed mean > median >> Krum."""
    clean = {
        rule: accuracy["label_sorted", "none", rule]
        for rule in ("mean", "centered_clipping", "geometric_median", "trimmed_mean", "median", "krum")
    }
    assert min(clean["mean"], clean["centered_clipping"], clean["geometric_median"]) > 0.89
    assert clean["geometric_median"] > clean["trimmed_mean"] + 0.05
    assert clean["trimmed_mean"] > clean["median"] + 0.05
    assert clean["median"] > clean["krum"] + 0.2


def test_every_rule_but_the_mean_holds_where_clients_are_alike(accuracy):
    for rule in (
        "centered_clipping",
        "geometric_median",
        "trimmed_mean",
        "median",
        "krum",
        "nnm >> trimmed_mean",
        "nnm >> krum",
    ):
        assert worst(accuracy, "iid", rule) > 0.85, rule
    assert worst(accuracy, "iid", "mean") <= CHANCE


@pytest.mark.parametrize("rule", ["geometric_median", "trimmed_mean", "median", "krum"])
def test_mixing_saves_every_rule_where_clients_differ(accuracy, rule):
    """Label-sorted, worst of the attacks: NNM + X beats X by 20 points and more."""
    assert worst(accuracy, "label_sorted", f"nnm >> {rule}") > worst(accuracy, "label_sorted", rule) + 0.2


def test_against_flipped_labels_the_mean_does_best_where_clients_differ(accuracy):
    flipped = {
        rule: value
        for (where, attack, rule), value in accuracy.items()
        if (where, attack) == ("label_sorted", "label_flip")
    }
    for rule in ("trimmed_mean", "median", "krum", "nnm >> trimmed_mean", "nnm >> median", "nnm >> krum"):
        assert flipped["mean"] > flipped[rule], rule
