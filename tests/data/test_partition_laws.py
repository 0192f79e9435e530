"""Partitions keep the laws that they are named for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.contracts import Examples
from fedguard.errors import ConfigError
from fedguard.metrics.dissimilarity import dissimilarity
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification

KNOWN = load_registry()
SPECS = [
    "quantity_skew",
    "feature_skew",
    "feature_skew(share=0.5)",
    "gamma_similarity",
    "gamma_similarity(gamma=0.0)",
    "label_ordered(gamma=0.5)",
    "label_sets(parties=5)",
]


def examples(count=1430, classes=10, seed=0, width=3):
    draw = torch.Generator().manual_seed(seed)
    return Examples(
        torch.randn(count, width, generator=draw),
        torch.arange(count) % classes,
        torch.randint(40, (count,), generator=draw),
    )


def split(spec, clients=20, seed=0, of=None):
    return KNOWN.build("partition", spec).split(of or examples(), clients, Rng(seed))


@pytest.mark.parametrize("spec", SPECS)
def test_every_example_is_dealt_out_once_and_the_same_seed_deals_the_same(spec):
    dealt = split(spec)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(1430)) and len(dealt) == 20
    assert min(map(len, dealt)) > 0
    assert [part.tolist() for part in split(spec)] == [part.tolist() for part in dealt]
    assert [part.tolist() for part in split(spec, seed=1)] != [part.tolist() for part in dealt]


@pytest.mark.parametrize("spec", SPECS)
def test_as_many_examples_as_clients_are_enough_and_fewer_are_refused(spec):
    few = examples(20)
    if spec == "quantity_skew":
        assert {len(part) for part in split("quantity_skew(smallest=1)", of=few)} == {1}
        with pytest.raises(ConfigError, match="quantity_skew: expected 2 examples per client; got 20 for 20 clients"):
            split(spec, of=few)
    else:
        assert {len(part) for part in split(spec, of=few)} == {1}
        with pytest.raises(ConfigError, match=r"at least one example per client; got (20 for 21|4 for 5) clients"):
            split(spec, 21, of=few)


def test_sizes_under_quantity_skew_have_the_moments_of_their_law_and_labels_do_not_matter():
    """A share of what is free has mean 1/n and variance (1/n)(1 - 1/n) / (n alpha + 1)."""
    n, alpha, count, smallest = 5, 0.7, 10_000, 10
    some = examples(count)
    sizes = np.array(
        [
            [len(part) for part in split(f"quantity_skew(alpha={alpha}, smallest={smallest})", n, seed, some)]
            for seed in range(800)
        ]
    )
    shares = (sizes - smallest) / (count - n * smallest)
    assert sizes.min() >= smallest and (sizes.sum(1) == count).all()
    assert shares.mean(0) == pytest.approx(np.full(n, 1 / n), abs=0.03)
    assert shares.var() == pytest.approx((1 / n) * (1 - 1 / n) / (n * alpha + 1), rel=0.08)
    for part in split("quantity_skew(alpha=100)", n, 0, some):
        assert np.abs(np.bincount(some.y[part], minlength=10) / len(part) - 0.1).max() < 0.05


def distances(spec, of=None, seed=0):
    """Mean total variation distance of the clients' labels from the pooled ones, and their means' spread along x."""
    some = of or examples()
    parts = split(spec, of=some, seed=seed)
    labels = np.stack([np.bincount(some.y[part], minlength=10) / len(part) for part in parts])
    spread = np.var([float(some.x[part, 0].mean()) for part in parts]) / float(some.x[:, 0].var())
    return np.abs(labels - labels.mean(0)).sum(1).mean() / 2, spread


def test_gamma_0_is_sorted_labels_and_gamma_1_is_iid():
    some = examples()
    for part in split("gamma_similarity(gamma=0.0)"):
        assert len(np.unique(some.y[part])) <= 2
    iid = np.mean([distances("iid", seed=seed)[0] for seed in range(20)])
    one = np.mean([distances("gamma_similarity(gamma=1.0)", seed=seed)[0] for seed in range(20)])
    assert one == pytest.approx(iid, rel=0.05)
    assert {len(part) for part in split("gamma_similarity(gamma=0.3)", 19)} <= {75, 76}


def test_gamma_is_the_share_of_each_client_that_is_like_everybodys():
    """A client has (1 - gamma) of its examples from its own run of labels, and gamma from the pool."""
    some = examples(20_000)
    for gamma in (0.2, 0.6):
        for part in split(f"gamma_similarity(gamma={gamma})", 10, of=some):
            shares = np.sort(np.bincount(some.y[part], minlength=10) / len(part))
            assert shares[:-2].sum() == pytest.approx(gamma * 0.8, abs=0.03)


def skewed(count=2000):
    """Inputs that differ most along one direction, which labels do not tell, and classes far apart along another."""
    draw = np.random.default_rng(0)
    y = np.arange(count) % 10
    x = draw.normal(size=(count, 4)) * [3, 1, 1, 1]
    x[:, 1] += 50 * y
    return Examples(torch.from_numpy(x).float(), torch.from_numpy(y))


def test_feature_skew_sorts_along_what_differs_within_classes_and_spreads_labels_evenly():
    some = skewed()
    labels, spread = distances("feature_skew", some)
    assert labels < 0.05
    assert spread > 0.95  # nearly all of the variance is between clients
    parts = sorted(split("feature_skew", of=some), key=lambda part: float(some.x[part, 0].mean()))
    quantiles = [float(some.x[part, 0].median()) for part in parts]
    expected = np.quantile(some.x[:, 0].numpy(), (np.arange(20) + 0.5) / 20)
    assert quantiles == pytest.approx(expected.tolist(), abs=0.6)


def test_a_share_of_0_sorts_nothing():
    some = skewed()
    assert distances("feature_skew(share=0.0)", some)[1] < 0.05
    assert distances("feature_skew(share=0.0)", some)[1] < distances("feature_skew(share=0.5)", some)[1] < 0.5


def test_feature_skew_takes_inputs_of_one_number():
    some = Examples(torch.arange(40.0)[:, None], torch.zeros(40, dtype=torch.int64))
    assert sorted(part.min() for part in split("feature_skew", 4, of=some)) == [0, 10, 20, 30]


def test_natural_clients_are_whole_and_never_mixed():
    some = examples()
    dealt = split("natural", 20)
    owners = [np.unique(some.client[part]) for part in dealt]
    assert all(len(owner) == 1 for owner in owners) and len({int(owner[0]) for owner in owners}) == 20
    for part, owner in zip(dealt, owners, strict=True):
        assert len(part) == int((some.client == int(owner[0])).sum())
    drawn = [{int(some.client[part[0]]) for part in split("natural", 20, seed)} for seed in range(200)]
    shares = np.bincount([client for one in drawn for client in one], minlength=40) / 200
    assert shares == pytest.approx(np.full(40, 0.5), abs=0.15)  # each is as likely as any other


def test_natural_clients_that_are_too_few_too_small_or_unknown_are_refused():
    with pytest.raises(
        ConfigError, match="expected 41 natural clients with 2 examples or more; the data have 40. Lower"
    ):
        split("natural", 41)
    with pytest.raises(ConfigError, match="with 1000 examples or more; the data have 0"):
        split("natural(smallest=1000)", 1)
    with pytest.raises(ConfigError, match="natural: these data do not say which client an example is from"):
        split("natural", of=Examples(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64)))


@pytest.mark.parametrize(
    "harder",
    [
        ["iid", "gamma_similarity(gamma=0.5)", "gamma_similarity(gamma=0.1)", "gamma_similarity(gamma=0.0)"],
        ["feature_skew(share=0.0)", "feature_skew(share=0.5)", "feature_skew"],
    ],
)
def test_the_measured_dissimilarity_rises_as_the_partition_gets_harder(harder):
    data, model = KNOWN.build("data", "digits"), KNOWN.build("model", "softmax")
    found = [
        dissimilarity(Classification.deal(data, model, KNOWN.build("partition", spec), 20, Rng(0)), Rng(0))[
            "gradient_dissimilarity"
        ]
        for spec in harder
    ]
    assert found == sorted(found) and found[-1] > 2 * found[0]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("quantity_skew(alpha=0)", "quantity_skew: alpha: expected more than 0"),
        ("quantity_skew(smallest=0)", "smallest: expected at least 1"),
        ("feature_skew(share=1.5)", r"feature_skew: share: expected a number in \[0, 1\]"),
        ("gamma_similarity(gamma=-0.1)", r"gamma_similarity: gamma: expected a number in \[0, 1\]"),
        ("natural(smallest=0)", "natural: smallest: expected at least 1"),
    ],
)
def test_wrong_parameters_are_refused(spec, said):
    with pytest.raises(ConfigError, match=said):
        KNOWN.build("partition", spec)
