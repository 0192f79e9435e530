"""Planted faults are found, and right mechanisms raise no alarm."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedguard.bench.audits.sarif import as_sarif
from fedguard.errors import InputError
from fedguard.privacy.audit.gaussian import epsilon_of
from fedguard.privacy.blackbox.audit import audit_mechanism
from fedguard.privacy.blackbox.claim import EpsilonClaim, NoiseParameters
from fedguard.privacy.blackbox.mechanism import call
from fedguard.privacy.blackbox.verdict import MechanismAudit
from tests.privacy.blackbox.mechanisms import GAUSSIAN, PURE, SHAPES, SIGMA, Faults, Given, clip

RIGHT = ("gaussian", "laplace_l1", "on_a_grid", "skipping", "constant", "randomized_response")
STRUCTURAL = {
    "identity": "no_noise",
    "bare_layer": "bare",
    "coins": "values",
    "floats_alone": "buffers",
}
PROVEN = ("half", "each_layer", "clipped_after", "no_clip", "laplace_l2", "scaled", "signed_zeros")


def audited(
    name: str, *, seed: int = 0, samples: int = 3000, claim: EpsilonClaim | None = None, rounds: int = 50
) -> MechanismAudit:
    function = getattr(Faults(seed), name)
    claim = claim or (PURE if name.startswith(("laplace", "randomized")) else GAUSSIAN)
    return audit_mechanism(Given(lambda: function), claim, samples=samples, budget=60, seed=seed, rounds=rounds)


@pytest.mark.parametrize("name", ["gaussian", "skipping"])
def test_right_mechanisms_raise_no_alarm(name: str) -> None:
    found = audited(name, samples=1200)
    assert found.verdict == "consistent", found.words
    assert not [one for one in found.findings if one.refutes]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RIGHT)
def test_right_mechanisms_raise_no_alarm_with_many_calls(name: str, seed: int) -> None:
    found = audited(name, seed=seed, samples=6000)
    assert found.verdict == "consistent", found.words
    assert not [one for one in found.findings if one.refutes]
    if name == "gaussian":
        bounds = found.bounds[0]
        assert bounds.shown is not None and 0.75 * 4 < bounds.shown.epsilon <= 4
        assert bounds.proven.epsilon > 1 and bounds.proven_rounds.epsilon > 20


@pytest.mark.parametrize(("name", "code"), STRUCTURAL.items())
def test_faults_of_structure_are_named(name: str, code: str) -> None:
    found = audited(name, samples=80)
    assert found.verdict == "violated" and found.exit_code == 3
    assert [one.code for one in found.findings if one.refutes] == [code]


@pytest.mark.parametrize("name", ["seeded", "repeating"])
def test_seeded_noise_is_found_in_new_instances_or_in_one(name: str) -> None:
    faults = Faults(0)
    found = audit_mechanism(Given(getattr(faults, name)), GAUSSIAN, budget=10)
    assert found.verdict == "violated" and found.findings[0].code in ("seed", "no_noise") and not found.bounds


@pytest.mark.parametrize("name", ["half", "clipped_after", "sometimes_bare"])
def test_too_little_noise_is_proven(name: str) -> None:
    assert audited(name).verdict == "violated"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PROVEN)
def test_too_little_noise_is_proven_for_each_fault(name: str, seed: int) -> None:
    found = audited(name, seed=seed, samples=8000)
    assert found.verdict == "violated", found.words
    assert not [one for one in found.findings if one.refutes]


def test_a_law_that_the_claim_names_is_judged_by_it() -> None:
    named = EpsilonClaim(epsilon=1, delta=1e-5, relation="replace", law="gaussian")
    found = audited("gaussian", samples=2000, claim=named)
    assert found.verdict == "violated" and "gaussian noise that it names" in found.words


@pytest.mark.slow
def test_a_law_that_the_claim_does_not_name_is_only_warned_of() -> None:
    loose = EpsilonClaim(epsilon=3, delta=1e-5, relation="replace")
    found = audited("gaussian", samples=6000, claim=loose)
    assert found.verdict == "consistent" and "violated if the noise is gaussian" in found.words
    rules = {one["ruleId"] for one in json.loads(as_sarif(found, Path.cwd()))["runs"][0]["results"]}
    assert found.doubtful and "audit/epsilon-doubtful" in rules and "audit/epsilon-exceeded" not in rules


def test_without_a_claim_nothing_is_violated() -> None:
    nothing = audit_mechanism(Given(lambda: Faults(0).identity), budget=5)
    assert nothing.verdict == "no claim can be made" and nothing.exit_code == 4
    function = Faults(0).gaussian
    bounds = audit_mechanism(Given(lambda: function), samples=400, budget=20)
    assert bounds.verdict == "no guarantee claimed" and bounds.exit_code == 4
    assert [one.relation for one in bounds.bounds] == ["zero_out", "replace"]


@pytest.mark.slow
def test_the_weaker_relation_is_judged_and_the_stronger_one_told() -> None:
    """Noise for "an update or nothing" has more than its epsilon for any two updates."""
    faults = Faults(0)
    claim = EpsilonClaim(epsilon=4, delta=1e-5)
    found = audit_mechanism(
        Given(lambda: lambda update: faults.noise(clip(update), 1 / GAUSSIAN.mu)), claim, samples=4000, budget=60
    )
    assert found.verdict == "consistent" and "relation" in [one.code for one in found.unpaid]


def test_what_leaves_beside_the_update_is_unpaid() -> None:
    found = audited("tells_loss", samples=80)
    told = [one.words for one in found.unpaid if one.code == "metrics"]
    assert found.verdict == "consistent" and len(told) == 1 and "'loss'" in told[0]


def test_parameters_give_the_exact_epsilon_and_what_the_claim_lacks_of_it() -> None:
    function = Faults(0).gaussian
    mechanism = Given(lambda: function)
    mechanism.facts = NoiseParameters(law="gaussian", scale=SIGMA, clip=1.0)
    low = EpsilonClaim(epsilon=3.5, delta=1e-5, relation="replace")
    (bounds,) = (found := audit_mechanism(mechanism, low, rounds=9, samples=80, budget=3)).bounds
    assert bounds.exact == pytest.approx(4) and bounds.exact_rounds == pytest.approx(epsilon_of(3 * GAUSSIAN.mu, 9e-5))
    assert [one.epsilon for one in found.unpaid if one.code == "formula"] == [bounds.exact]


def test_a_claim_that_says_nothing_of_so_many_rounds_is_not_refuted_by_them() -> None:
    """Of 100 rounds with delta = 0.02 each, 50 add up to delta = 1: no epsilon is claimed any more."""
    loose = EpsilonClaim(epsilon=4, delta=0.02, relation="replace")
    for rounds, over in ((40, 160), (100, math.inf)):
        found = audited("gaussian", samples=400, claim=loose, rounds=rounds)
        assert loose.over(rounds)[0] == over and found.verdict == "consistent"
        assert found.bounds[0].proven_rounds.delta == (0.8 if rounds == 40 else 1e-5)


def test_an_input_that_stops_the_mechanism_is_told() -> None:
    found = audited("raises_beyond", samples=400)
    assert "stops" in [one.code for one in found.unpaid]


def test_a_mechanism_that_raises_at_once_is_refused() -> None:
    def broken(update):
        raise RuntimeError("CUDA is not here")

    with pytest.raises(InputError, match=r"given: expected a release .* it raised .*CUDA is not here"):
        audit_mechanism(Given(lambda: broken), GAUSSIAN, budget=5)


def test_other_shapes_and_changed_inputs_are_audited() -> None:
    rng = Faults(0)

    def shorter(update):
        seen.add(float(update[0].flat[0]))
        for one in update:
            one *= 0.5
        return rng.half(update)[:2]

    seen: set[float] = set()
    mechanism = Given(lambda: shorter)
    x = tuple(np.full(shape, 0.5, np.float32) for shape in SHAPES)
    for _ in range(3):
        call(mechanism.fresh(), x)
    assert seen == {0.5}  # each call gets a copy of its own
    found = audit_mechanism(mechanism, GAUSSIAN, samples=1000, budget=20)
    assert found.bounds and found.bounds[0].proven.epsilon > 0
