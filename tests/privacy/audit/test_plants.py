"""Faults that look like noise, each planted in the classes that train: a whole audit finds them and says where.

All of `tests.privacy.audit.plants` in all kinds of noise is `benchmarks/audit.py`, whose short form fails where one is missed.
"""

from __future__ import annotations

import pytest

from tests.privacy.audit import plants

#: Kind of noise, fault, the checks of which one must see it, what its words must name.
SEEN = [
    ("server", "noise: coin flips of the right variance", {"law", "training: law"}, ""),
    ("server", "noise: Laplace of the right variance", {"law", "training: law"}, ""),
    ("server", "noise: cut at 3 sigma", {"law", "training: law"}, "is 3.00 standard deviations"),
    ("server", "noise: none on the last 5 coordinates", {"training: places"}, "has 0.000"),
    ("server", "noise: none on the biases", {"training: places"}, "layer 1 has 0.000"),
    ("server", "seeded by round and data", {"data"}, "other data"),
    ("server", "one update is lost", {"data"}, ""),
    ("server, bands", "noise: cut at 3 sigma", {"law", "training: law"}, ""),
    ("DP-SGD", "noise: coin flips of the right variance", {"law"}, ""),
    ("DP-SGD", "noise: cut at 3 sigma", {"law"}, ""),
    ("DP-SGD", "noise: none on the biases", {"model: places"}, "layer 1 has 0.000"),
    ("DP-SGD", "one of 20 clients without", {"training: places"}, "client 7 has 0.0"),
    ("DP-SGD", "seeded by round and data", {"training: data"}, ""),
    ("DP-SGD", "examples see each other", {"model: examples"}, "moves the clipped sum by up to"),
    ("clients, discrete Gaussian", "noise: cut at 3 sigma", {"law"}, ""),
    ("clients, discrete Gaussian", "noise: none on the biases", {"training: clients: places"}, "layer 1 has 0.0"),
    ("clients, discrete Gaussian", "one of 20 clients without", {"training: clients: places"}, "client 7 has 0.0"),
    ("clients, discrete Gaussian", "seeded by round and data", {"training: clients: data"}, ""),
    ("clients, discrete Gaussian", "every tenth update is lost", {"training: clients: data"}, ""),
]


#: Each fault once and each kind of noise once: the quick ones. The others are the same faults in another place.
QUICK = {
    ("server", "noise: coin flips of the right variance"),
    ("server", "noise: Laplace of the right variance"),
    ("server", "noise: none on the last 5 coordinates"),
    ("server", "one update is lost"),
    ("server, bands", "noise: cut at 3 sigma"),
    ("DP-SGD", "noise: none on the biases"),
    ("DP-SGD", "seeded by round and data"),
    ("DP-SGD", "examples see each other"),
    ("clients, discrete Gaussian", "one of 20 clients without"),
    ("clients, discrete Gaussian", "every tenth update is lost"),
}


@pytest.mark.parametrize(
    ("where", "name", "seen_by", "named"),
    [pytest.param(*one, id=f"{one[0]}-{one[1]}", marks=[pytest.mark.slow] * (one[:2] not in QUICK)) for one in SEEN],
)
def test_a_fault_that_looks_like_noise_is_seen_and_named(where, name, seen_by, named):
    (plant,) = (one.plant for one in plants.PLANTS if (one.where, one.name) == (where, name))
    found = plants.audited(where, plant)
    failed = {check.name: check for check in found.checks if not check.passed}
    assert found.verdict == "violated"
    assert seen_by & failed.keys(), failed
    assert any(named in failed[check].words for check in seen_by & failed.keys()), failed


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(
    "where", [pytest.param(one, marks=[pytest.mark.slow] * one.startswith("clients")) for one in plants.SUITES]
)
def test_right_code_passes(where, seed):
    found = plants.audited(where, seed=seed)
    assert found.verdict == "consistent", found.words


def test_the_quick_ones_are_each_fault_and_each_kind_of_noise():
    kinds = [{one[:2][part] for one in SEEN} for part in (0, 1)]
    assert [{one[part] for one in QUICK} for part in (0, 1)] == kinds and {one[:2] for one in SEEN} > QUICK
