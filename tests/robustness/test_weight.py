"""Breakdown in weight: the lightest sites that break a rule, and how far one site moves it, against what can be worked out."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch

from fedguard.contracts import ROWS, CoordinateRule, Pipeline, Sight, WeightRule
from fedguard.errors import NotAllowed, PreconditionError
from fedguard.registry import load_registry
from fedguard.robustness.weight import MOST_SITES, breakdown_in_weight

#: No two sets of sites weigh alike, and half of the weight is none of them
SIZES = (17834, 8000, 5000, 2500, 900, 190)
SHARES = [size / sum(SIZES) for size in SIZES]
#: Five sites of which none has half
EVEN = (30, 25, 20, 15, 10)


def meter(text: str, sizes=SIZES, f: int = 1, seed: int = 0):
    return breakdown_in_weight(load_registry().pipeline(text), sizes, f, seed=seed)


def lightest(sizes, breaks) -> float:
    """The smallest share of a set of sites for which ``breaks`` holds, by trying each."""
    sets = itertools.chain.from_iterable(itertools.combinations(range(len(sizes)), k) for k in range(1, len(sizes)))
    return min(sum(sizes[i] for i in one) for one in sets if breaks(one)) / sum(sizes)


def weight_above(sizes, share: float):
    return lambda one: sum(sizes[i] for i in one) > share * sum(sizes)


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("mean", lambda one: True),
        ("weighted_mean", lambda one: True),
        ("capped_mean", lambda one: True),
        ("median", lambda one: 2 * len(one) >= len(SIZES)),
        ("trimmed_mean", lambda one: len(one) > 1),
        ("weighted_median", weight_above(SIZES, 0.5)),
        ("weighted_trimmed_mean(share=0.2)", weight_above(SIZES, 0.2)),
        ("weighted_trimmed_mean(share=0.05)", weight_above(SIZES, 0.05)),
        ("clip >> weighted_mean", lambda one: 2 * len(one) >= len(SIZES)),
    ],
)
def test_the_least_weight_that_breaks_a_rule(text, breaks):
    found = meter(text)
    assert found.least == pytest.approx(lightest(SIZES, breaks))
    assert sum(SHARES[site] for site in found.sites) == pytest.approx(found.least)
    assert found.shares == pytest.approx(SHARES)


@pytest.mark.parametrize(("share", "sizes"), [(0.2, EVEN), (0.3, EVEN), (0.36, EVEN)])
def test_a_trimmed_share_holds_up_to_itself_in_any_profile(share, sizes):
    expected = lightest(sizes, weight_above(sizes, share))
    assert meter(f"weighted_trimmed_mean(share={share})", sizes).least == pytest.approx(expected)


def test_no_set_breaks_lengths_that_are_bounded_for_good():
    found = meter("clip(bound=1) >> weighted_mean", EVEN)
    assert found.least is None and found.sites == ()
    # A site of share w turns its update around: 2 w, and more is impossible
    assert found.pull == pytest.approx([2 * size / sum(EVEN) for size in EVEN], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "n", "f", "expected"),
    [("median", 6, 1, 1.0), ("median", 5, 1, 2.0), ("trimmed_mean", 6, 1, 0.5), ("trimmed_mean", 7, 2, 2 / 3)],
)
def test_the_pull_of_a_site_among_equals(text, n, f, expected):
    """Of signs 1 and -1 a site that turns around moves one more of them over the middle."""
    found = meter(text, [1] * n, f)
    assert found.pull == (found.pull[0],) * n
    assert found.pull[0] >= expected - 1e-5


def test_a_site_with_more_than_half_of_the_weight_is_the_weighted_median():
    found = meter("weighted_median")
    assert math.isinf(found.pull[0]) and found.pull[1:] == (0,) * 5
    assert found.sites == (0,)


def test_it_repeats_with_its_seed():
    first, again, other = (meter("clip >> capped_mean(share=0.3, clients=1)", EVEN, seed=seed) for seed in (1, 1, 2))
    assert first == again and first.least == other.least and first.evaluations > 100


def test_unequal_sites_are_told_apart_only_where_the_rule_does():
    assert len(set(meter("krum", SIZES).pull)) == 1
    assert len(set(meter("clip(bound=1) >> weighted_mean", SIZES).pull)) == 6


@dataclass(frozen=True, kw_only=True)
class TrustsTheFirst(WeightRule):
    """A rule that only one site can break, and not the lightest one."""

    name, needs, reads_clients = "trusts_the_first", (Sight.EACH_UPDATE,), True

    def weights(self, gram, context):
        return torch.tensor([float(client == 0) for client in context.clients], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Bounded(CoordinateRule):
    """A rule that nothing breaks, though it follows each site a long way."""

    name, needs = "bounded", ROWS

    def reduce(self, block, context):
        return block.clamp(-50, 50).mean(0)


def test_rules_of_ones_own():
    found = breakdown_in_weight(Pipeline((TrustsTheFirst(),)), EVEN, 1)
    assert found.sites == (0,) and found.least == 0.3
    assert math.isinf(found.pull[0]) and found.pull[1:] == (0,) * 4
    none = breakdown_in_weight(Pipeline((Bounded(),)), EVEN, 1)
    assert none.least is None and 8 < none.pull[0] <= 51 / 5 * 2


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(PreconditionError, match=f"expected from 2 to {MOST_SITES} of them; got 13"):
        meter("mean", [1] * 13)
    with pytest.raises(PreconditionError, match="krum needs n >= 2f"):
        meter("krum", [1, 2, 3], 1)
    with pytest.raises(NotAllowed, match="fltrust needs"):
        meter("fltrust")
