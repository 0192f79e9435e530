"""Numbers of examples that clients claim: at every seat one that counts for nothing is dropped, or refused where a caller says it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.contracts import PoisonAttack, Sight, lies
from fedguard.contracts.channels import SAMPLES
from fedguard.errors import ConfigError, ContractError, FedGuardError, InputError, PreconditionError

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor([[1.0, 50.0], [2.0, 60.0], [4.0, 90.0], [8.0, 20.0]])
MODEL = {"a": torch.tensor([10.0, -10.0])}
CLIENTS = [{"a": MODEL["a"] + row} for row in ROWS]
#: Of four clients: not one number for each.
NO_NUMBERS = ([1, 1, 1], [1, 1, 1, 1, 7], ["3", "1", "1", "1"], [None, 1, 1, 1], 5, "1111", {1: 2}, [True, 1, 1, 1], [1j, 1, 1, 1], [[1], [1], [1], [1]])  # fmt: skip
#: Numbers of which the first is nothing to weigh by.
NOTHING = (NAN, INF, -INF, -1, -0.5, 2.0**113, 10**400, -(10**400), np.float32("nan"))


def weighed(rows: list[list[float]], counts: list[float]) -> list[float]:
    """The weighted mean, number by number."""
    total = sum(counts)
    return [sum(count * row[place] for row, count in zip(rows, counts, strict=True)) / total for place in range(len(rows[0]))]  # fmt: skip


@pytest.mark.parametrize("samples", [*NO_NUMBERS, *([bad, 3, 1, 2] for bad in NOTHING), [0, 0, 0, 0], [0.0, -0.0, 0, 0]], ids=repr)  # fmt: skip
@pytest.mark.parametrize("rule", ["weighted_mean", "capped_mean", "median"])
def test_what_a_caller_says_is_refused(samples, rule):
    with pytest.raises(InputError, match=r"samples(\[0\])?[: ]") as caught:
        fg.aggregate(rule, ROWS, samples=samples)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("attack", [None, "sign_flip", "inflated_samples"])
@pytest.mark.parametrize("rule", ["weighted_mean", "capped_mean", "median"])
def test_at_a_guard_no_number_is_a_mistake_and_zeros_for_all_too(attack, rule):
    for samples in (*NO_NUMBERS, [0, 0, 0, 0]):
        with pytest.raises(InputError, match="samples"):
            fg.Guard(attack=attack, defense=rule, f=1).step(MODEL, CLIENTS, samples=samples)


@pytest.mark.parametrize("bad", NOTHING, ids=repr)
def test_at_a_guard_who_claims_nothing_to_weigh_by_is_dropped(bad):
    """As if it had not answered; and since an honest claim is a number, one fewer is reckoned to be malicious."""
    guard = fg.Guard(defense="weighted_mean", assumed_f=1)
    found = guard.step(MODEL, CLIENTS, samples=[3, 5, bad, 2])["a"] - MODEL["a"]
    kept = [ROWS[row].tolist() for row in (0, 1, 3)]
    assert found.tolist() == pytest.approx(weighed(kept, [3, 5, 2]))
    assert guard.dropped == 1
    trimmed = (
        fg.Guard(defense="trimmed_mean", assumed_f=1).step(MODEL, CLIENTS, samples=[3, 5, bad, 2])["a"] - MODEL["a"]
    )
    assert trimmed.tolist() == pytest.approx(weighed(kept, [1, 1, 1]))  # nothing is trimmed any more
    attacked = fg.Guard(attack="sign_flip", defense="weighted_mean", f=1)
    attacked.step(MODEL, CLIENTS, samples=[bad, 5, 1, 2])
    assert attacked.dropped == 1


def test_numbers_of_all_kinds_are_taken():
    wanted = weighed(ROWS.tolist(), [3, 0, 1, 2])
    for samples in (
        [3, 0, 1, 2], (3.0, 0.0, 1.0, 2.0), np.array([3, 0, 1, 2], np.uint8), torch.tensor([3, 0, 1, 2]), range(4),
        torch.tensor([3, 0, 1, 2], dtype=torch.bfloat16), np.array([3, 0, 1, 2], ">i4"), [Fraction(3), 0, np.float16(1), torch.tensor(2)],
    ):  # fmt: skip
        truth = wanted if not isinstance(samples, range) else weighed(ROWS.tolist(), [0, 1, 2, 3])
        assert fg.aggregate("weighted_mean", ROWS, samples=samples).tolist() == pytest.approx(truth)
        found = fg.Guard(defense="weighted_mean").step(MODEL, CLIENTS, samples=samples)["a"] - MODEL["a"]
        assert found.tolist() == pytest.approx(truth)


def test_a_claim_of_a_malicious_client_is_its_own_word():
    """Who does not lie about it claims what it has: 0, or a part of an example, too."""
    for own in (0, 0.25, 3, 2.5):
        guard = fg.Guard(attack="sign_flip", defense="weighted_mean", f=1)
        found = guard.step(MODEL, CLIENTS, samples=[own, 5, 1, 2])["a"] - MODEL["a"]
        rows = [(-ROWS[0]).tolist(), *ROWS[1:].tolist()]
        sent = guard.apply_attack(MODEL["a"], ROWS, [0], samples=[own, 5, 1, 2])
        assert sent[1] == (own, 5, 1, 2)
        rows[0] = sent[0][0].tolist()
        assert found.tolist() == pytest.approx(weighed(rows, [own, 5, 1, 2]))
    lying = fg.Guard(attack="inflated_samples(factor=7)", defense="weighted_mean", f=1)
    assert lying.apply_attack(MODEL["a"], ROWS, [2], samples=[1, 2, 2.5, 4])[1] == (1, 2, pytest.approx(7 * 2.5), 4)
    assert lying.apply_attack(MODEL["a"], ROWS, [2], samples=[1, 2, 0, 4])[1] == (1, 2, 0, 4)


@pytest.mark.parametrize("said", [0, -3, 2.5, None, NAN, 2**113, 10**400])
def test_an_attack_that_claims_what_is_no_number_is_named(said):
    class Says(PoisonAttack):
        name, needs = "says", (Sight.NOTHING,)

        def craft(self, view):
            return torch.zeros(view.f, view.dim)

        @lies(SAMPLES)
        def claim(self, samples):
            return said

    with pytest.raises(ContractError, match="says broke its contract: samples: expected"):
        fg.Guard(attack=Says(), defense="weighted_mean", f=1).step(MODEL, CLIENTS, samples=[4, 5, 1, 2])


def test_where_what_is_left_claims_nothing_the_rule_says_so():
    """The one claim above 0 is of a client whose update is not finite."""
    clients = [{"a": torch.tensor([NAN, 1.0])}, *CLIENTS[1:]]
    for rule in ("weighted_mean", "capped_mean"):
        with pytest.raises(
            PreconditionError, match=f"{rule} weighs by numbers of examples, and the 3 updates' numbers add up to 0"
        ):
            fg.Guard(defense=rule).step(MODEL, clients, samples=[9, 0, 0, 0])
    with pytest.raises(PreconditionError, match="none of 4 updates is left"):
        fg.Guard(defense="weighted_mean").step(MODEL, CLIENTS, samples=[NAN] * 4)


def test_a_cap_that_cuts_all_to_nothing_says_so():
    """One client holds all: no cap above 0 leaves it half."""
    with pytest.raises(PreconditionError, match="capped_mean weighs by numbers of examples"):
        fg.aggregate("capped_mean", ROWS, f=1, samples=[5, 0, 0, 0])


@pytest.mark.filterwarnings("ignore::fedguard.errors.GuaranteeWarning")
def test_no_claim_is_a_fault_of_a_rule_of_ours():
    """Whatever is claimed, nobody hears that FedGuard's own rule broke its contract, or of an error of Python's."""
    for rule in ("weighted_mean", "capped_mean", "nnm >> trimmed_mean", "krum"):
        for first in (*NOTHING, 0, 1e-320, 1e30, 5e33):
            for samples in ([first, 1, 1, 1], [first, 0, 0, 0], [first] * 4):
                for attack in (None, "sign_flip", "inflated_samples(factor=1000000000000)"):
                    try:
                        found = fg.Guard(attack=attack, defense=rule, f=1).step(MODEL, CLIENTS, samples=samples)["a"]
                        assert bool(found.isfinite().all())
                    except FedGuardError as error:
                        assert isinstance(error, InputError | ConfigError), (rule, samples, attack)
