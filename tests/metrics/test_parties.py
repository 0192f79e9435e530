"""Parties with different tasks: label sets of their own, each party's accuracy, and a trunk in common that beats a head in common."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.bench.pages import cell_facts
from fedguard.contracts import Examples
from fedguard.errors import ConfigError
from fedguard.metrics.parties import parties
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.root import ROOT

EXAMPLE = ROOT / "examples" / "parties.yaml"


def label_sets(parties: int = 3, clients: int = 7, classes: int = 10, count: int = 700) -> list[set[int]]:
    """The classes of each client."""
    examples = Examples(torch.zeros(count, 2), torch.arange(count) % classes)
    dealt = load_registry().build("partition", f"label_sets(parties={parties})").split(examples, clients, Rng(0))
    return [set(examples.y[part].tolist()) for part in dealt]


def test_a_client_has_the_classes_of_its_party_and_no_other():
    found = label_sets()
    for client, own in enumerate(found):
        assert own == [{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}][client % 3]


def test_within_a_party_examples_are_alike():
    """Four clients with 700 examples of five classes: each has 35 of each class, at four deviations."""
    examples = Examples(torch.zeros(7000, 2), torch.arange(7000) % 10)
    dealt = load_registry().build("partition", "label_sets(parties=2)").split(examples, 8, Rng(0))
    counts = np.stack([np.bincount(examples.y[part], minlength=10) for part in dealt])
    assert (counts.sum(1) == 875).all()
    assert np.abs(counts[::2, :5] - 175).max() < 4 * (875 * 0.2 * 0.8) ** 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 2}, "label_sets: expected a client for each of 3 parties; got 2 clients."),
        ({"parties": 6, "classes": 11}, "label_sets: expected two classes for each of 6 parties; got 11 classes."),
    ],
)
def test_a_party_without_clients_or_a_choice_of_classes_is_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        label_sets(**{"clients": 7, **changes})
    assert message in str(caught.value)


def test_the_accuracy_of_a_party_counts_its_test_examples():
    labels = [0] * 10 + [1] * 30 + [2] * 5 + [3] * 5
    right = {0: 4, 1: 27, 2: 5, 3: 0}
    found = parties([(0, 1), (2, 3)], [right[c] / labels.count(c) for c in range(4)], torch.tensor(labels))
    assert found == {
        "classes": [[0, 1], [2, 3]],
        "accuracy": [pytest.approx((4 + 27) / 40), pytest.approx(5 / 10)],
        "worst": pytest.approx(0.5),
    }


def test_a_party_without_test_examples_is_not_known():
    found = parties([(0, 1), (2, 3)], [0.5, 1.0, None, None], torch.tensor([0, 1, 1]))
    assert found["accuracy"] == [pytest.approx((0.5 + 2.0) / 3), None] and found["worst"] == found["accuracy"][0]


SUITE = {
    "name": "parties",
    "task": {"data": "digits", "model": {"name": "mlp", "hidden": [32]}, "partition": "label_sets(parties=3)"},
    "clients": {"total": 6},
    "training": {"rounds": 15, "local_epochs": 1, "batch_size": 16, "lr": 0.1},
    "evaluation": {"every": 5},
    "matrix": {"training.algorithm": ["fedavg", "fedper"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run({**SUITE, "seeds": [0]}, store=tmp_path_factory.mktemp("parties"), jobs=1)


def by_algorithm(run) -> dict[str, dict]:
    return {record["threat_card"]["algorithm"]: record for _, record in run.trials()}


def test_each_party_does_better_with_a_last_layer_of_its_own(run):
    found = by_algorithm(run)
    shared, own = (found[name]["result"]["parties"]["accuracy"] for name in ("fedavg", "fedper"))
    assert len(own) == 3 and all(mine > everybodys + 0.02 for mine, everybodys in zip(own, shared, strict=True))
    assert min(own) > 0.85


def test_the_figure_and_the_page_tell_each_partys(run):
    for algorithm, record in by_algorithm(run).items():
        told = record["result"]["parties"]
        classes = record["result"]["class_accuracy"]
        assert told["classes"] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
        assert told["worst"] == min(told["accuracy"])
        for own, accuracy in zip(told["classes"], told["accuracy"], strict=True):
            assert min(classes[c] for c in own) <= accuracy <= max(classes[c] for c in own)
        (row,) = (row for row in run.rows("worst_party_accuracy") if algorithm in row.values())
        assert row["worst_party_accuracy"] == told["worst"]
        rows = cell_facts.parties([record]).rows
        assert [row[0] for row in rows] == ["0, 1, 2, 3", "4, 5, 6", "7, 8, 9"]
        assert [float(row[1].split()[0]) for row in rows] == [
            pytest.approx(100 * accuracy, abs=0.051) for accuracy in told["accuracy"]
        ]


def test_cells_whose_clients_have_one_task_have_no_parties(tmp_path):
    """Their records are what they were."""
    suite = {**SUITE, "task": {"data": "digits", "model": "softmax", "partition": "iid"}, "matrix": {}, "seeds": [0]}
    run = fg.run({**suite, "training": {"rounds": 1}}, store=tmp_path, jobs=1)
    (record,) = (record for _, record in run.trials())
    assert "parties" not in record["result"] and cell_facts.parties([record]) is None
    assert run.rows("worst_party_accuracy")[0]["worst_party_accuracy"] is None


@pytest.mark.slow
def test_the_example_shows_it_in_each_seed_and_under_attack(tmp_path):
    """The worst party, by seed: with a last layer of its own it is above any with one in common, attacked or not."""
    run = fg.run(EXAMPLE, store=tmp_path, jobs=1)
    rows = run.rows("worst_party_accuracy")
    assert {row["status"] for row in rows} == {"ok"}
    worst = {
        (row["training.algorithm"], row["attack"], row["defense"], row["seed"]): row["worst_party_accuracy"]
        for row in rows
    }
    for (algorithm, attack, defense, seed), accuracy in worst.items():
        if algorithm == "fedper":
            assert accuracy > worst["fedavg", attack, defense, seed] + 0.05
    assert math.fsum(worst["fedper", "none", "mean", seed] for seed in range(3)) / 3 > 0.94
