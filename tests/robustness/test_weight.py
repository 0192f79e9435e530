"""Breakdown in weight: the lightest sites that break a rule, and how far one site moves it, against what can be worked out."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
import torch

from fedguard.contracts import ROWS, CoordinateRule, Pipeline, Sight, WeightRule
from fedguard.contracts.participation import MOST_SITES
from fedguard.errors import NotAllowed, PreconditionError
from fedguard.registry import load_registry
from fedguard.robustness.weight import breakdown_in_weight

#: No two sets of sites weigh alike, one site has more than half, and none of the shares below is a set's
SIZES = (52, 27, 16, 5)
SHARES = [size / sum(SIZES) for size in SIZES]
#: Sites of which none has half
EVEN = (34, 28, 22, 16)


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
        ("weighted_trimmed_mean(share=0.04)", weight_above(SIZES, 0.04)),
        pytest.param("clip >> weighted_mean", lambda one: 2 * len(one) >= len(SIZES), marks=pytest.mark.slow),
    ],
)
def test_the_least_weight_that_breaks_a_rule(text, breaks):
    found = meter(text)
    assert found.least == pytest.approx(lightest(SIZES, breaks))
    assert sum(SHARES[site] for site in found.sites) == pytest.approx(found.least)
    assert found.shares == pytest.approx(SHARES)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.25, 0.36])
def test_a_trimmed_share_holds_up_to_itself_in_any_profile(share):
    expected = lightest(EVEN, weight_above(EVEN, share))
    assert meter(f"weighted_trimmed_mean(share={share})", EVEN).least == pytest.approx(expected)


@pytest.mark.slow
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
    assert math.isinf(found.pull[0]) and found.pull[1:] == (0,) * 3
    assert found.sites == (0,)


def test_it_repeats_with_its_seed():
    first, again, other = (meter("median", SIZES, seed=seed) for seed in (1, 1, 2))
    assert first == again and first.least == other.least and first.evaluations > 100


def test_unequal_sites_are_told_apart_only_where_the_rule_does():
    assert len(set(meter("trimmed_mean").pull)) == 1
    assert len(set(meter("weighted_trimmed_mean(share=0.3)", EVEN).pull)) > 1


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
    assert found.sites == (0,) and found.least == pytest.approx(0.34)
    assert math.isinf(found.pull[0]) and found.pull[1:] == (0,) * 3
    none = breakdown_in_weight(Pipeline((Bounded(),)), EVEN, 1)
    assert none.least is None and 10 < none.pull[0] <= 51 / 4 * 2


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(PreconditionError, match=f"expected from 2 to {MOST_SITES} of them; got 13"):
        meter("mean", [1] * 13)
    with pytest.raises(PreconditionError, match="median needs n >= 2f"):
        meter("median", [1, 2], 1)
    with pytest.raises(NotAllowed, match="fltrust needs"):
        meter("fltrust")
