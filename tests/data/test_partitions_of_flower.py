"""Partitions that Flower has too: the label histograms of flwr-datasets 0.6 on its own seed, and the laws of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedguard.contracts import Examples
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng

KNOWN = load_registry()
LABELS = np.repeat(np.arange(6), [80, 60, 50, 40, 40, 30])[np.arange(300) * 77 % 300]
#: 12 natural clients, the squares modulo 23.
OWNERS = np.arange(300) ** 2 % 23

#: Made once with flwr-datasets 0.6, by its own classes with seed=42: for each of 8 clients, the examples of each class.
PUBLISHED = {
    "pathological(assignment='random')": [
        [27, 0, 0, 0, 10, 0], [0, 0, 25, 0, 0, 10], [27, 0, 0, 0, 10, 0], [26, 0, 0, 14, 0, 0],
        [0, 0, 0, 13, 10, 0], [0, 0, 0, 13, 0, 10], [0, 0, 25, 0, 10, 0], [0, 60, 0, 0, 0, 10],
    ],
    "pathological": [
        [20, 0, 0, 0, 20, 0], [0, 20, 0, 14, 0, 0], [0, 0, 50, 0, 0, 10], [20, 0, 0, 13, 0, 0],
        [0, 20, 0, 0, 20, 0], [20, 0, 0, 0, 0, 10], [20, 0, 0, 13, 0, 0], [0, 20, 0, 0, 0, 10],
    ],
    "pathological(assignment='deterministic')": [
        [27, 15, 0, 0, 0, 0], [0, 15, 17, 0, 0, 0], [0, 0, 17, 20, 0, 0], [0, 0, 0, 20, 20, 0],
        [0, 0, 0, 0, 20, 15], [27, 0, 0, 0, 0, 15], [26, 15, 0, 0, 0, 0], [0, 15, 16, 0, 0, 0],
    ],
    "inner_dirichlet(alpha=0.5)": [
        [16, 15, 0, 6, 0, 1], [0, 3, 14, 3, 12, 6], [6, 20, 6, 5, 0, 1], [11, 4, 11, 0, 3, 9],
        [16, 2, 0, 6, 3, 10], [13, 0, 2, 20, 1, 1], [12, 8, 12, 0, 4, 1], [6, 8, 5, 0, 17, 1],
    ],
    "inner_dirichlet(alpha=0.1)": [
        [13, 19, 0, 6, 0, 0], [3, 0, 0, 6, 9, 20], [18, 2, 3, 15, 0, 0], [0, 0, 8, 2, 28, 0],
        [8, 0, 20, 9, 0, 0], [14, 2, 19, 2, 0, 0], [24, 0, 0, 0, 3, 10], [0, 37, 0, 0, 0, 0],
    ],
}  # fmt: skip


class TheirSeed(Rng):
    """Draws what flwr-datasets draws with seed=42; children, which only shuffle, are FedGuard's."""

    def numpy(self):
        return np.random.default_rng(42)


class InOrder(Rng):
    """Takes natural clients in their order, as flwr-datasets does."""

    def numpy(self):
        class Identity:
            permutation = staticmethod(np.arange)

        return Identity()


def examples(labels=LABELS, owners=OWNERS):
    return Examples(torch.zeros(len(labels), 1), torch.from_numpy(labels), torch.from_numpy(owners))


def split(spec, clients=8, rng=None, of=None):
    return KNOWN.build("partition", spec).split(of or examples(), clients, rng or Rng(0))


def histograms(parts, labels=LABELS):
    return [np.bincount(labels[part], minlength=int(labels.max()) + 1).tolist() for part in parts]


@pytest.mark.parametrize("spec", PUBLISHED)
def test_label_histograms_are_those_of_flwr_datasets(spec):
    assert histograms(split(spec, rng=TheirSeed(0))) == PUBLISHED[spec]


def test_groups_of_natural_clients_have_the_histograms_of_flwr_datasets():
    """Its GroupedNaturalIdPartitioner with group_size=3, mode="drop-reminder" and sort_unique_ids=True."""
    theirs = [[19, 12, 12, 8, 9, 6], [22, 16, 12, 11, 9, 8], [21, 16, 15, 10, 8, 8], [18, 16, 11, 11, 14, 8]]
    assert histograms(split("natural(group=3)", 4, InOrder(0))) == theirs


@pytest.mark.parametrize("spec", ["inner_dirichlet", "inner_dirichlet(alpha=0.01)", "pathological(assignment='deterministic')", "pathological(classes=3)"])  # fmt: skip
def test_every_example_is_dealt_once_and_the_same_seed_deals_the_same(spec):
    dealt = split(spec)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(300))
    assert [part.tolist() for part in split(spec)] == [part.tolist() for part in dealt]
    assert [part.tolist() for part in split(spec, rng=Rng(1))] != [part.tolist() for part in dealt]


@pytest.mark.parametrize("assignment", ["first_deterministic", "random", "deterministic"])
@pytest.mark.parametrize("classes", [1, 3, 6])
def test_each_client_has_k_classes_and_shares_each_evenly_with_its_other_holders(assignment, classes):
    for seed in range(5):
        found = np.array(histograms(split(f"pathological(classes={classes}, assignment='{assignment}')", 9, Rng(seed))))
        assert ((found > 0).sum(1) == classes).all()
        for column, all_of_class in zip(found.T, np.bincount(LABELS), strict=True):
            held = column[column > 0]
            assert len(held) == 0 or (held.sum() == all_of_class and held.max() - held.min() <= 1)
        if assignment != "random":  # no class is lost
            assert found.sum() == 300


def test_the_other_classes_of_a_client_are_equally_likely():
    often = np.zeros(6)
    for seed in range(600):
        often += np.array(histograms(split("pathological", 1, Rng(seed)))[0]) > 0
    assert often[0] == 600  # client 0 has class 0
    # Each other with probability 1/5; the standard deviation of a share of 600 draws is 0.016
    assert np.abs(often[1:] / 600 - 0.2).max() < 4.5 * 0.0164


def test_sizes_of_inner_dirichlet_are_equal_and_a_lower_alpha_is_harder():
    def distance(alpha):
        apart = []
        for seed in range(5):
            found = np.array(histograms(split(f"inner_dirichlet(alpha={alpha})", 7, Rng(seed))))
            assert set(found.sum(1)) == {42, 43}
            shares = found / found.sum(1, keepdims=True)
            apart.append(np.abs(shares - np.bincount(LABELS) / 300).sum(1).mean() / 2)
        return np.mean(apart)

    hard, middle, mild = (distance(alpha) for alpha in (0.05, 1, 1000))
    assert hard > 1.3 * middle and middle > 1.5 * mild
    assert mild < 0.2  # 42 draws of six classes: about 0.14 by chance alone


def test_shares_of_inner_dirichlet_have_the_moments_of_their_law():
    """Of far more examples than are dealt to any one client of few, none is used up: shares are Dirichlet's."""
    alpha, labels = 0.7, np.arange(60_000) % 3
    found = np.array(
        [
            KNOWN.build("partition", f"inner_dirichlet(alpha={alpha})")._count_dealt(
                np.bincount(labels), [400], Rng(seed).numpy()
            )[0] / 400
            for seed in range(800)
        ]
    )  # fmt: skip
    assert found.mean(0) == pytest.approx(np.full(3, 1 / 3), abs=0.04)
    # Dirichlet's variance, and what is added by drawing 400 examples
    law = (1 / 3) * (2 / 3) / (3 * alpha + 1)
    assert found.var(0).mean() == pytest.approx(law + (2 / 9 - law) / 400, rel=0.08)


def test_a_client_whose_classes_are_used_up_takes_what_is_left():
    """At this alpha a client wants one class, mostly; there are 8 clients and not enough of any class for all."""
    for seed in range(5):
        dealt = split("inner_dirichlet(alpha=0.0001)", 8, Rng(seed))
        assert sorted(np.concatenate(dealt).tolist()) == list(range(300)) and {len(part) for part in dealt} == {37, 38}


def test_groups_of_natural_clients_are_whole_and_never_split():
    for seed in range(5):
        dealt = split("natural(group=3)", 4, Rng(seed))
        owners = [set(OWNERS[part].tolist()) for part in dealt]
        assert all(len(one) == 3 for one in owners) and len(set().union(*owners)) == 12
        assert sorted(np.concatenate(dealt).tolist()) == list(range(300))
    one, plain = (split(spec, 12, Rng(3)) for spec in ("natural(group=1)", "natural"))
    assert [part.tolist() for part in one] == [part.tolist() for part in plain]
    assert KNOWN.build("partition", "natural(group=1)").spec() == {"name": "natural", "smallest": 2}


@pytest.mark.parametrize(
    ("spec", "clients", "said"),
    [
        ("pathological(classes=7)", 8, "pathological: classes: expected at most the 6 that the examples have; got 7"),
        ("pathological(classes=6)", 31, "an example of class 5 for each of 31 clients; got 30. Lower clients.total or classes"),
        ("inner_dirichlet", 301, "inner_dirichlet: expected at least one example per client; got 300 for 301 clients"),
        ("natural(group=4)", 4, "expected 16 natural clients with 2 examples or more; the data have 12. Lower clients.total or smallest, or group"),
    ],
)  # fmt: skip
def test_what_cannot_be_dealt_is_one_line(spec, clients, said):
    with pytest.raises(ConfigError, match=said) as caught:
        split(spec, clients)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("pathological(classes=0)", "pathological: classes: expected at least 1"),
        (
            "pathological(assignment='some')",
            "pathological: assignment: expected 'first_deterministic', 'random' or",
        ),
        ("inner_dirichlet(alpha=0)", "inner_dirichlet: alpha: expected more than 0"),
        ("natural(group=0)", "natural: group: expected at least 1"),
    ],
)
def test_wrong_parameters_are_refused(spec, said):
    with pytest.raises(ConfigError, match=said):
        KNOWN.build("partition", spec)
