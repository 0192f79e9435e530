"""Orderings that any sound benchmark must reproduce; it runs examples/anchor.yaml. Margins are wide: the order is the test.

`make test-slow` takes three seeds, `make test-slow ANCHOR_SEEDS=1` one, half of the rounds, and no cell that no test here reads.
"""

from __future__ import annotations

import os
from statistics import fmean
from typing import Any

import pytest
import yaml

import fedguard as fg
from tests.root import ROOT

pytestmark = pytest.mark.slow

SUITE = ROOT / "examples" / "anchor.yaml"
CHANCE = 0.11  # the largest class among 360 test images
BARE = ("geometric_median", "trimmed_mean", "median", "krum")


def parts(seeds: int) -> list[dict[str, Any]]:
    """The suite with so many seeds; with one, the parts of its matrix that are read."""
    whole = {**yaml.safe_load(SUITE.read_text()), "seeds": seeds}
    if seeds > 1:
        return [whole]
    alike, unlike = ({"task.partition": [how]} for how in ("iid", "label_sorted"))
    read = [
        alike | {"defense": ["mean", "centered_clipping", *BARE, "nnm >> trimmed_mean", "nnm >> krum"]},
        unlike | {"defense": ["mean", *BARE, *(f"nnm >> {rule}" for rule in BARE)]},
        unlike | {"defense": ["centered_clipping"], "attack": ["none"]},
    ]
    training = {**whole["training"], "rounds": 100}
    return [{**whole, "training": training, "matrix": {**whole["matrix"], **part}} for part in read]


@pytest.fixture(scope="module")
def accuracy(tmp_path_factory):
    """Mean final accuracy by partition, attack and defense."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for suite in parts(int(os.environ.get("ANCHOR_SEEDS", "3"))):
        run = fg.run(suite, store=tmp_path_factory.mktemp("runs"))
        assert not run.with_status("failed") and not run.with_status("refused")
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


@pytest.mark.parametrize("rule", BARE)
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
