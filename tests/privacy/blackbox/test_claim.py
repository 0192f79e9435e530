"""Claims: what they imply for R rounds, and what is refused."""

from __future__ import annotations

import math

import pytest

from fedguard.errors import ConfigError
from fedguard.privacy.audit.gaussian import delta_of, epsilon_of
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters

TEXT = "epsilon=8, delta=1e-5, per=release, relation=replace, law=gaussian"


def test_a_claim_with_its_law_composes_by_the_law() -> None:
    claim = EpsilonClaim.parse(TEXT)
    assert delta_of(claim.mu, 8) == pytest.approx(1e-5, rel=1e-9)
    assert claim.over(1) == pytest.approx((8, 1e-5))
    assert claim.over(50)[0] == pytest.approx(118.8, abs=0.1)
    assert claim.over(50)[0] == pytest.approx(epsilon_of(claim.mu * math.sqrt(50), 1e-5))


def test_a_claim_without_its_law_adds_up() -> None:
    claim = EpsilonClaim.parse({"epsilon": 2, "delta": 1e-3, "per": "release"})
    assert claim.over(7) == (14, pytest.approx(7e-3)) and claim.relation_to_judge == "zero_out"
    assert claim.over(2000)[0] == math.inf
    training = EpsilonClaim.parse("epsilon=3, delta=1e-5, per=20")
    assert training.over(1) == training.over(20) == (3, 1e-5) and training.over(21) == (6, 2e-5)


def test_facts_are_exact_under_both_relations() -> None:
    facts = NoiseParameters(law="gaussian", scale=2.0, clip=1.0)
    assert facts.epsilon("zero_out", 1, 1e-5) == pytest.approx(epsilon_of(0.5, 1e-5))
    assert facts.epsilon("replace", 9, 1e-5) == pytest.approx(epsilon_of(3.0, 1e-5))
    assert NoiseParameters(law="laplace", scale=0.5, clip=1.5).epsilon("replace", 3, 0.0) == 18
    assert NoiseParameters(law="gaussian", scale=0.0, clip=1.0).epsilon("zero_out", 1, 1e-5) == math.inf


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epsilon=8", "per=release or per=ROUNDS"),
        ("delta=1e-5, per=release", "epsilon=NUMBER"),
        ("epsilon=8, per=sometimes", "per: expected a number"),
        ("epsilon=8, per=0", "from 1"),
        ("epsilon=8, per=2.5", "from 1"),
        ("epsilon=-1, per=release", "above 0"),
        ("epsilon=nan, per=release", "expected a number"),
        ("epsilon=8, delta=1, per=release", "below 1"),
        ("epsilon=8, per=release, law=gaussian", "above 0 for Gaussian"),
        ("epsilon=8, per=release, law=cauchy", "gaussian, laplace"),
        ("epsilon=8, per=release, relation=neighbor", "zero_out, replace, add_remove"),
        ("epsilon=8, per=release, sigma=2", "expected the keys"),
        ("epsilon=8, epsilon=9, per=release", "each key once"),
        ("epsilon 8", "KEY=VALUE"),
    ],
)
def test_what_is_no_claim_is_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        EpsilonClaim.parse(text)
    assert "\n" not in str(caught.value)
