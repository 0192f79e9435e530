"""What malicious clients say of themselves, where they strike and when: against plain loops, and what it does to a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch

from fedguard.contracts import Pipeline, PoisonAttack, PoisonView, Sight, WeightRule, lies
from fedguard.contracts.channels import SAMPLES
from fedguard.errors import ContractError, FedGuardError, PreconditionError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.systems.scenes import cell, reports, scene
from tests.table import context


def view(honest: torch.Tensor, state=None) -> PoisonView:
    return PoisonView(
        "test", Sight.HONEST_UPDATES, round=1, n=len(honest) + 2, dim=honest.shape[1], malicious=(7, 8), layers=(),
        server_lr=1.0, rng=Rng(0), state=state or {}, honest=honest,
    )  # fmt: skip


# A cap on claims.


def cap_by_trial(claims: list[float], f: int, share: float) -> list[float]:
    """Portnoy et al.: of very many caps the largest under which the f largest hold at most the share."""
    best = min(claims)
    for step in range(20_001):
        cap = max(claims) * step / 20_000
        cut = sorted((min(claim, cap) for claim in claims), reverse=True)
        if cap > 0 and sum(cut[:f]) <= share * sum(cut) * (1 + 1e-12):
            best = max(best, cap)
    cut = [min(claim, best) for claim in claims]
    return [claim / sum(cut) for claim in cut]


@pytest.mark.parametrize(("f", "share"), [(1, 0.3), (2, 0.5), (3, 0.4), (0, 0.1)])
def test_claims_are_cut_so_that_no_f_clients_hold_more_than_the_share(f, share):
    claims = [900.0, 30.0, 10.0, 20.0, 500.0, 10.0, 40.0, 25.0, 15.0]
    seen = context(9, f, dim=2)
    seen = seen.restrict("test", seen.granted, samples=torch.tensor(claims).double())
    rule = load_registry().pipeline(f"capped_mean(share={share})").rule
    weights = rule.weights(_Rows(9), seen).tolist()
    assert weights == pytest.approx(cap_by_trial(claims, f, share), abs=1e-3)
    if f:
        assert sum(sorted(weights)[-f:]) == pytest.approx(share, abs=1e-6)
        assert sum(sorted(claims)[-f:]) / sum(claims) > share  # and without the cap it is more
    else:
        assert weights == pytest.approx([claim / sum(claims) for claim in claims])


@dataclass
class _Rows:
    n: int


def test_where_no_claim_stands_out_it_is_the_weighted_mean():
    claims = torch.tensor([10.0, 12.0, 9.0, 11.0]).double()
    seen = context(4, 1, dim=2)
    weights = (
        load_registry().pipeline("capped_mean").rule.weights(_Rows(4), seen.restrict("t", seen.granted, samples=claims))
    )
    assert torch.equal(weights, claims / claims.sum())


def test_a_share_that_equal_clients_exceed_is_refused():
    with pytest.raises(
        PreconditionError, match=r"f = 3 of n = 10 equal clients hold more than 0.2.*Raise share to 0.3"
    ):
        load_registry().pipeline("capped_mean(share=0.2)").check(10, 3)


# Lies about examples.


@dataclass(frozen=True, kw_only=True)
class Notes(WeightRule):
    """The weighted mean, and a note of who claims what."""

    name = "notes"
    needs = (Sight.EACH_UPDATE,)
    reads_clients = True
    seen: list = field(default_factory=list)

    def weights(self, gram, context):
        self.seen.append(dict(zip(context.clients, context.samples.tolist(), strict=True)))
        return context.samples / context.samples.sum()


@pytest.mark.parametrize("system", ["server", "parameter_server", "google(over=1.0)"])
def test_only_who_acts_lies_about_its_examples(system):
    made, setup = scene(
        system, clients={"malicious": 2}, attack="inflated_samples(factor=7)", threat={"first_round": 3},
        task={"partition": {"kind": "dirichlet", "alpha": 0.5}},
    )  # fmt: skip
    rule = Notes()
    list(made.architecture.run(setup.with_parts(pipeline=Pipeline((rule,)), rule_sees=Sight.EACH_UPDATE)))
    sizes = dict(enumerate(map(float, setup.task.sizes)))
    lying = {client: (7 if client in setup.malicious else 1) * size for client, size in sizes.items()}
    assert rule.seen == [sizes, sizes, lying, lying]


def test_the_weighted_mean_follows_the_lie_and_a_cap_bounds_it():
    def accuracy(defense: str, attack: str) -> float:
        *_, last = reports(
            clients={"total": 10, "malicious": 2}, attack=attack, defense=defense, training={"rounds": 6}
        )
        return last.evaluation.accuracy

    assert accuracy("weighted_mean", "inflated_samples(factor=10)") < 0.3
    assert accuracy("weighted_mean", "sign_flip") > 0.6
    assert accuracy("capped_mean(share=0.3)", "inflated_samples(factor=10)") > 0.4
    assert accuracy("mean", "inflated_samples(factor=10)") == accuracy("mean", "sign_flip")


def test_a_claim_is_a_number_of_examples():
    for said in (0, -3, 2.5, None):
        attack = type(
            "Says", (PoisonAttack,), {"name": "says", "claim": lies(SAMPLES)(lambda self, samples, said=said: said)}
        )()
        _, setup = scene(clients={"malicious": 1}, attack="zeros")
        with pytest.raises(ContractError, match="says broke its contract: samples: expected"):
            _ = setup.with_parts(attack=attack).claims


def test_under_masks_the_lie_is_refused():
    masked = {"secure_aggregation": "full"}
    made = cell(clients={"malicious": 1}, attack="inflated_samples", defense="weighted_mean", protocol=masked,
                threat={"knowledge": ["own_data", "model"]})  # fmt: skip
    assert any("under masks each client weighs its own update" in reason for reason in made.verdict.reasons)


# One range.


@pytest.mark.parametrize(("ranges", "of"), [(5, 0), (5, 4), (3, 1), (1, 0)])
def test_one_range_is_reversed_and_the_others_are_the_mean(ranges, of):
    honest = torch.randn(6, 13, generator=torch.Generator().manual_seed(3))
    sent = load_registry().build("attack", f"one_range(ranges={ranges}, of={of}, tau=2.0)").craft(view(honest))
    sizes = [13 // ranges + (part < 13 % ranges) for part in range(ranges)]
    first = sum(sizes[:of])
    for coordinate in range(13):
        mean = sum(honest[:, coordinate].tolist()) / 6
        inside = first <= coordinate < first + sizes[of]
        assert sent[:, coordinate].tolist() == pytest.approx([-2.0 * mean if inside else mean] * 2, abs=1e-6)


def test_a_range_that_there_is_not_is_named():
    with pytest.raises(FedGuardError, match="one_range: of: expected less than ranges = 5; got 5"):
        load_registry().build("attack", "one_range(of=5)")


# Another time.


def test_what_is_released_was_once_sent_and_points_away_most():
    attack, state, kept = load_registry().build("attack", "held_back(memory=4)"), {}, []
    for round in range(12):
        angle = 0.4 * round
        center = torch.tensor([math.cos(angle), math.sin(angle), 0.5])
        honest = center + 0.1 * torch.randn(5, 3, generator=torch.Generator().manual_seed(round))
        rows, mean = honest.tolist(), honest.mean(0).tolist()

        def along(row: list[float], mean: list[float] = mean) -> float:
            return sum(a * b for a, b in zip(row, mean, strict=True))

        kept = [*kept, min(rows, key=along)][-4:]
        seen = view(honest, state)
        sent = attack.craft(seen)
        assert sent.tolist() == [min(kept, key=along)] * 2
        state = attack.remember(seen, sent)
    assert kept.index(min(kept, key=along)) == 0  # the oldest, where the direction turns
