"""Data sets, partitions and the measured dissimilarity."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.contracts import Examples
from fedguard.errors import ConfigError
from fedguard.metrics.dissimilarity import dissimilarity
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.architectures.test_training import deal

KNOWN = load_registry()
LABELS = np.repeat(np.arange(10), 143)


def parts(spec, clients=20, seed=0, labels=LABELS):
    examples = Examples(torch.zeros(len(labels), 1), torch.from_numpy(labels))
    return KNOWN.build("partition", spec).split(examples, clients, Rng(seed))


@pytest.mark.parametrize(
    ("name", "shape", "train", "test", "classes"),
    [("digits", (1, 8, 8), 1437, 360, 10), ("breast_cancer", (30,), 455, 114, 2), ("wine", (13,), 142, 36, 3)],
)
def test_data_sets(name, shape, train, test, classes):
    dataset = KNOWN.build("data", name).load()
    assert (dataset.shape, len(dataset.train), len(dataset.test), dataset.classes) == (shape, train, test, classes)
    low, high = dataset.value_range
    assert low <= float(dataset.train.x.min()) < float(dataset.train.x.max()) <= high
    shares = [part.y.bincount(minlength=classes) / len(part) for part in (dataset.train, dataset.test)]
    assert (shares[0] - shares[1]).abs().max() < 0.02  # stratified
    again = KNOWN.build("data", name).load()
    assert torch.equal(again.test.x, dataset.test.x)


def test_test_examples_are_not_among_the_training_examples():
    dataset = KNOWN.build("data", "digits").load()
    train = {tuple(row.tolist()) for row in dataset.train.x.flatten(1)}
    assert not train & {tuple(row.tolist()) for row in dataset.test.x.flatten(1)}


@pytest.mark.parametrize(
    "spec", ["iid", "dirichlet(alpha=0.1)", "dirichlet(alpha=100)", "label_sorted", "label_sorted(shards=2)"]
)
def test_partitions_deal_every_example_out_once(spec):
    dealt = parts(spec)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(LABELS)))
    assert min(map(len, dealt)) > 0
    assert [part.tolist() for part in parts(spec)] == [part.tolist() for part in dealt]
    assert [part.tolist() for part in parts(spec, seed=1)] != [part.tolist() for part in dealt]


def test_iid_parts_are_even():
    assert {len(part) for part in parts("iid", clients=7)} <= {204, 205}


def test_label_sorted_clients_know_one_or_two_classes():
    for part in parts("label_sorted"):
        assert len(np.unique(LABELS[part])) <= 2
    assert max(len(np.unique(LABELS[part])) for part in parts("label_sorted(shards=2)")) <= 4


def test_dirichlet_shares_have_the_moments_of_their_law():
    """A client's share of a class has mean 1/n and variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    n, alpha = 5, 0.5
    labels = np.zeros(10_000, dtype=np.int64)
    shares = np.array(
        [
            [len(part) / len(labels) for part in parts(f"dirichlet(alpha={alpha})", n, seed, labels)]
            for seed in range(800)
        ]
    )
    assert shares.mean() == pytest.approx(1 / n)
    assert shares.var() == pytest.approx((1 / n) * (1 - 1 / n) / (n * alpha + 1), rel=0.06)


def test_partitions_that_cannot_serve_everybody_say_so():
    with pytest.raises(
        ConfigError,
        match="left one of 50 clients with fewer than 2 of the 60 examples in each of 1,000 draws. Raise alpha",
    ):
        parts("dirichlet(alpha=0.1)", clients=50, labels=LABELS[:60])
    with pytest.raises(ConfigError, match="expected at least one example per client; got 10 for 20 clients"):
        parts("iid", labels=LABELS[:10])
    with pytest.raises(ConfigError, match="expected at least one example per shard; got 10 for 20 shards"):
        parts("label_sorted", labels=LABELS[:10])


def test_dissimilarity_orders_the_partitions_and_has_known_ends():
    found = {
        spec: dissimilarity(deal(partition=spec, clients=20), Rng(0))
        for spec in ("iid", "dirichlet(alpha=1)", "dirichlet(alpha=0.1)", "label_sorted")
    }
    for measure in ("label_distance", "gradient_dissimilarity"):
        values = [one[measure] for one in found.values()]
        assert values == sorted(values), measure
    assert found["iid"]["label_distance"] < 0.2
    assert found["label_sorted"]["label_distance"] == pytest.approx(
        0.89, abs=0.02
    )  # two classes at most: about 1 - 1/10


def test_gradient_dissimilarity_is_its_formula():
    task = deal("softmax")
    model = task.initial_model(Rng(0).child("model"))
    gradients = []
    for part in task.parts:
        task.network.flat.copy_(model)
        loss = torch.nn.functional.cross_entropy(task.network.module(part.x), part.y)
        gradients.append(
            torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(task.network.module.parameters()))])
        )
    mean = sum(gradients) / len(gradients)
    expected = sum((g - mean).square().sum() for g in gradients) / len(gradients) / mean.square().sum()
    assert dissimilarity(task, Rng(0))["gradient_dissimilarity"] == pytest.approx(float(expected), rel=1e-4)


def test_evaluation_against_counting_by_hand():
    task = deal("softmax")
    model = task.initial_model(Rng(2))
    found = task.evaluate(model)
    test = task.dataset.test
    weight, bias = model[:640].view(10, 64), model[640:]
    guesses = [int((weight @ x.flatten() + bias).argmax()) for x in test.x]
    right = [guess == label for guess, label in zip(guesses, test.y.tolist(), strict=True)]
    assert found.accuracy == pytest.approx(sum(right) / len(right))
    for label in range(10):
        own = [ok for ok, truth in zip(right, test.y.tolist(), strict=True) if truth == label]
        assert found.class_accuracy[label] == pytest.approx(sum(own) / len(own))


def test_backdoor_success_leaves_out_the_target_class():
    """A model that always answers 3 has success 1 for the target 3, and 0 for any other."""
    task = deal("softmax")
    always = torch.zeros(task.dim)
    always[640 + 3] = 10
    trigger = KNOWN.build("trigger", "pixel_patch")
    assert task.backdoor_success(always, trigger, 3) == 1
    assert task.backdoor_success(always, trigger, 4) == 0


@pytest.mark.parametrize("model", ["lenet5", "fedavg_cnn"])
def test_image_models_refuse_other_data(model):
    with pytest.raises(ConfigError, match=f"{model} needs images"):
        KNOWN.build("model", model).build((30,), 2)
