"""Tests on pairs: what stats.py says of differences without spread is held against rounded noise; Holm against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from fedguard.bench.stats import holm, paired
from fedguard.rng import Rng


@pytest.mark.parametrize("pairs", [2, 3])
def test_equal_differences_are_as_rare_in_rounded_noise_as_their_p_value_says(pairs):
    """For the spread at which they are most frequent, and only where they are all on one side."""
    draw, most = Rng(3).child(pairs).numpy(), 0.0
    for spread in (0.5, 0.7, 1.0, 1.5, 2.5):
        rounded = np.round(spread * draw.standard_normal((400_000, pairs)))
        most = max(most, float(((rounded == rounded[:, :1]).all(1) & (rounded[:, 0] > 0)).mean()))
    claimed = paired([1.0] * pairs).p_above
    assert most <= claimed
    assert claimed < 3 * most
    assert paired([1.0] * pairs).p_value == 2 * claimed


def test_equal_differences_at_zero_or_below_are_no_evidence():
    assert paired([0.0, 0.0, 0.0]).p_value == 1.0
    assert paired([-1.0] * 8).p_above == 1.0
    assert paired([-1.0] * 8).p_value < 1e-4


def test_holm_by_its_definition():
    p_values = [0.01, 0.04, 0.03, 0.005]
    order = sorted(range(4), key=p_values.__getitem__)
    expected = [0.0] * 4
    for rank, index in enumerate(order):
        expected[index] = max(min(1.0, (4 - j) * p_values[order[j]]) for j in range(rank + 1))
    assert holm(p_values) == pytest.approx(expected)
