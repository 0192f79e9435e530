"""Attacks: golden values, the papers' formulae as loops, what each may see, and the contract of the table."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedguard as fg
import tests.reference as reference
from fedguard.aggregation import KnownPipeline
from fedguard.algorithms.fedsgd import FedSGD
from fedguard.architectures.gossip.d_psgd import DecentralizedSGD
from fedguard.architectures.server import Server
from fedguard.attacks.poisoning.alie import supportive_z
from fedguard.contracts import (
    DataView,
    Ensemble,
    Examples,
    LocalPlan,
    PoisonAttack,
    PoisonView,
    Sight,
    Training,
    first_met,
)
from fedguard.errors import ContractError, NotAllowed, NotObservable
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.architectures.test_training import deal, set_up
from tests.table import ATTACKS, LAYERS, MAGNITUDES, context, normal

THREE = [[1.0, 2, 3], [4, 5, 6], [7, 8, 9]]
CASES = pytest.mark.parametrize("case", ATTACKS, ids=lambda case: f"{case.name} {case.parameters or ''}")


def build(name, **parameters) -> PoisonAttack:
    return load_registry().build("attack", {"name": name, **parameters})


def view(
    honest, *, f=2, sees=None, own=None, state=None, round=1, clients=None, seed=0, attack="test", rule="mean"
) -> PoisonView:
    h = len(honest)
    return PoisonView(
        attack,
        sees if sees is not None else Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE | Sight.GRAPH,
        round=round,
        n=h + f,
        dim=honest.shape[1],
        malicious=tuple(range(h, h + f)),
        server_lr=1.0,
        local_lr=1.0,
        rng=Rng(seed).child(round),
        state=state or {},
        honest=honest,
        honest_clients=tuple(clients or range(h)),
        receiver=next(iter(clients or range(h)), 0),
        mixing=torch.full((h + f,), 1 / (h + f), dtype=torch.float64),
        slowest=(honest[0] - honest[-1]) / 2 if h else torch.zeros(honest.shape[1]),
        own=normal(f, honest.shape[1], seed=99) if own is None else own,
        model=torch.zeros(honest.shape[1]),
        layers=(layers := LAYERS.get(honest.shape[1], (honest.shape[1],))),
        ranks=(2,) * len(layers),
        rule=KnownPipeline(
            load_registry().pipeline(rule), lambda n, rows: context(n, f, dim=honest.shape[1], root=rows[:h].mean(0))
        ),
    )


def data_view(attack="test", sees=Sight.OWN_DATA, **facts) -> DataView:
    """What a malicious client sees of a task with ten classes and images of 8 x 8."""
    known = {
        "rng": Rng(0),
        "round": 1,
        "position": 0,
        "malicious": (0, 1),
        "classes": 10,
        "shape": (1, 8, 8),
        "value_range": (0.0, 1.0),
        "state": {},
    }
    return DataView(attack, sees, **{**known, **facts})


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({"lr": 0.5, "local_steps": 7}, 0.5 * 7),
        ({"lr": 0.1, "local_epochs": 3, "batch_size": 16}, 0.1 * 3 * 3),  # 40 examples make batches of 16, 16 and 8
        ({"lr": 0.1, "local_epochs": 2, "batch_size": None}, 0.1 * 2),
        ({"lr": 0.3, "algorithm": FedSGD()}, 1.0),
    ],
)
def test_an_attack_knows_how_far_a_unit_of_gradient_reaches(given, unit):
    """As far as the local training goes with a gradient of 1 in every step."""
    told = []

    class Curious(PoisonAttack):
        name, needs = "curious", (Sight.NOTHING,)

        def craft(self, view):
            told.append(view.local_lr)
            return torch.zeros(view.f, view.dim)

    task = deal("softmax", "iid", clients=6)
    task = replace(task, parts=tuple(part[torch.arange(40)] for part in task.parts))
    list(Server().run(set_up(task, Training(rounds=1, **given), attack=Curious(), malicious=(2,), told=1)))
    assert told == [pytest.approx(unit)]


@pytest.mark.parametrize("model", ["softmax", pytest.param("mlp(hidden=(24,))", marks=pytest.mark.slow)])
def test_rop_does_more_than_silence_against_centered_clipping(model):
    """Than the malicious clients' absence, and than their zeros."""
    task = deal(model, "dirichlet(alpha=0.3)", clients=20)
    training, bad = Training(rounds=30, lr=0.1, worker_momentum=0.9), (3, 7, 11, 15)

    def final(attack):
        parts = [part for client, part in enumerate(task.parts) if attack or client not in bad]
        some, malicious = replace(task, parts=tuple(parts)), bad if attack else ()
        setup = set_up(
            some, training, pipeline="centered_clipping", attack=attack, malicious=malicious, told=len(malicious)
        )
        return list(Server().run(setup))[-1].evaluation.accuracy

    assert final("rop") < min(final(None), final("zeros")) - 0.1


def test_golden_values():
    assert fg.craft("alie", THREE, f=1, z=1.5) == [[8.5, 9.5, 10.5]]
    assert fg.craft("ipm", THREE, f=2, tau=0.5) == [[-2, -2.5, -3]] * 2
    assert fg.craft("sign_flip", THREE, f=1) == [[-4, -5, -6]]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_alie_has_a_finite_z_in_a_round_without_honest_clients(n):
    assert math.isfinite(supportive_z(n, n))


@pytest.mark.parametrize(("n", "f"), [(20, 4), (50, 10), (25, 5), (11, 3)])
def test_alie_default_is_the_formula_of_the_source(n, f):
    s = n // 2 + 1 - f
    assert supportive_z(n, f) == pytest.approx(NormalDist().inv_cdf((n - f - s) / (n - f)))
    honest = normal(n - f, 6, seed=1)
    expected = reference.alie(honest.double().tolist(), supportive_z(n, f))
    assert fg.craft("alie", honest, f=f)[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_alie_with_a_majority_stays_finite():
    assert torch.isfinite(fg.craft("alie", normal(3, 4), f=5)).all()


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
@pytest.mark.parametrize("seed", range(5))
def test_min_max_agrees_with_the_bisection_of_the_source(direction, seed):
    honest = normal(7, 5, seed)
    rows, mu = honest.double().tolist(), reference.mean(honest.double().tolist())
    p = {
        "std": [a - b for a, b in zip(mu, reference.alie(rows, 1.0), strict=True)],
        "unit": [-m / reference.norm(mu) for m in mu],
        "sign": [-1.0 if m > 0 else 1.0 for m in mu],
    }[direction]
    expected = reference.min_max_by_bisection(rows, p)
    assert fg.craft("min_max", honest, f=1, direction=direction)[0].tolist() == pytest.approx(expected, abs=2e-5)


@given(seed=st.integers(0, 10_000), n=st.integers(3, 12), d=st.integers(1, 8))
def test_min_max_reaches_its_bound_whatever_its_direction(seed, n, d):
    honest = normal(n, d, seed)
    bound = torch.cdist(honest, honest).max()
    for direction in ("std", "unit", "sign", "chosen"):
        crafted = fg.craft("min_max", honest, f=1, direction=direction)
        assert float(torch.cdist(crafted, honest).max()) == pytest.approx(float(bound), rel=1e-3)


def test_mimic_follows_the_client_furthest_along_the_top_direction():
    """Clients differ along one axis; client 3 lies furthest out. After the warm-up it is copied, whoever is present."""
    attack, state = build("mimic", warmup=15), {}
    for round in range(1, 16):
        honest = torch.randn(6, 8, generator=torch.Generator().manual_seed(round)) * 0.1
        honest[:, 2] += torch.tensor([0.0, 1, -1, 5, 0.5, -0.5])
        seen = view(honest, state=state, round=round)
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
    z = state["z"]
    assert abs(z[2]) > 0.99
    assert float(z.norm()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(attack.craft(view(honest, state=state)), honest[3].expand(2, -1))
    assert attack.remember(view(honest, state=state), crafted) is state  # learned once
    without = honest[[0, 1, 2, 4, 5]]
    copied = attack.craft(view(without, state=state, clients=(0, 1, 2, 4, 5)))
    assert any(torch.equal(copied[0], row) for row in without)


def test_gaussian_has_the_stated_law_and_fresh_draws():
    one = fg.craft("gaussian", normal(2, 20_000), f=2, scale=3.0)
    assert float(one.std()) == pytest.approx(3, abs=0.05)
    assert float(one.mean()) == pytest.approx(0, abs=0.1)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, fg.craft("gaussian", normal(2, 20_000), f=2, scale=3.0, seed=1))


def test_label_flip_mirrors_the_classes():
    flipped = build("label_flip").poison(
        Examples(torch.zeros(4, 1), torch.tensor([0, 3, 8, 9])),
        data_view("label_flip"),
    )
    assert flipped.y.tolist() == [9, 6, 1, 0]


def test_pixel_patch_lights_its_corner_and_nothing_else():
    x = torch.rand(3, 1, 8, 8)
    before = x.clone()
    patched = load_registry().build("trigger", "pixel_patch(size=2)").apply(x, (0.0, 1.0))
    assert torch.equal(x, before)
    changed = patched != x
    assert (patched[:, :, 6:, 6:] == 1).all()
    assert not changed[:, :, :6].any() and not changed[:, :, :, :6].any()


def test_model_replacement_poisons_its_share_and_boosts():
    attack = build("model_replacement", target=7, share=0.25, epochs=3)
    examples = Examples(torch.rand(40, 1, 8, 8) * 0.5, torch.arange(40) % 7)
    poisoned = attack.poison(examples, data_view())
    hit = poisoned.y == 7
    assert int(hit.sum()) == 10
    assert (poisoned.x[hit][:, :, 6:, 6:] == 1).all()
    assert torch.equal(poisoned.x[~hit], examples.x[~hit])
    assert attack.plan(LocalPlan(lr=0.1, epochs=1), data_view()) == LocalPlan(lr=0.1, epochs=3)
    assert attack.plan(LocalPlan(lr=1.0, steps=1), data_view()) == LocalPlan(lr=1.0, steps=1)
    own = normal(2, 5)
    assert torch.allclose(attack.craft(view(normal(8, 5), own=own)), own * 10 / 2)


def test_model_replacement_replaces_the_model():
    """With the mean, one attacker of n and boost n, the global model becomes the attacker's, but for the honest mean."""
    task = deal("softmax")
    setup = set_up(task, Training(rounds=1, lr=0.05), attack="model_replacement", malicious=(2,), told=1)
    (report,) = Server().run(setup)
    start = task.initial_model(setup.rng.child("model"))
    rng, plan = setup.rng.child("round", 1), setup.cell.training.plan()
    honest, malicious = torch.empty(5, task.dim), torch.empty(1, task.dim)
    task.local_updates(start, [0, 1, 3, 4, 5], plan, rng, honest)
    attack = setup.cell.attack
    facts = {"rng": setup.rng.child("attack", "data", 2).apart(), "classes": 10, "value_range": (0.0, 1.0)}
    poisoned = task.with_examples({2: attack.poison(task.examples(2), data_view(**facts))})
    poisoned.local_updates(start, [2], attack.plan(plan, data_view()), rng, malicious)
    assert torch.allclose(report.model, start + malicious[0] + honest.sum(0) / 6, atol=1e-5)


def test_huge_value_hits_as_many_clients_as_it_says():
    own = normal(4, 5)
    sent = build("huge_value", factor=-100.0, count=2).craft(view(normal(6, 5), f=4, own=own))
    assert torch.equal(sent, torch.cat([own[:2] * -100, own[2:]]))


def test_stale_sends_what_each_client_computed_before():
    attack, state, sent = build("stale", delay=2), {}, []
    for round in range(1, 6):
        seen = view(normal(4, 3), own=torch.full((2, 3), float(round)), state=state, round=round)
        crafted = attack.craft(seen)
        state = attack.remember(seen, crafted)
        sent.append(crafted[0, 0].item())
    assert sent == [1, 1, 1, 2, 3]


def test_free_riders_return_the_model_or_disguise_it():
    assert not fg.craft("free_rider", normal(3, 4), f=2).any()
    assert float(fg.craft("free_rider", normal(2, 10_000), f=1, noise=0.5).std()) == pytest.approx(0.5, abs=0.02)


# The contract of the table.


def test_every_attack_stands_in_the_table():
    single = {cls.name for _, cls in load_registry().classes(["attack"]) if not issubclass(cls, Ensemble)}
    assert {case.name for case in ATTACKS} == single


@CASES
def test_crafts_what_its_contract_says_and_leaves_the_honest_updates_alone(case):
    attack = build(case.name, **case.parameters)
    honest, own = normal(8, 30, seed=1), normal(3, 30, seed=2)
    before = honest.clone()
    for sees in attack.needs:
        seen = view(honest, f=3, own=own.clone(), sees=sees)
        crafted = attack.craft(seen)
        assert crafted.shape == (3, 30)
        assert crafted.dtype == torch.float32
        assert bool(crafted.isfinite().all()) == case.finite
        assert isinstance(attack.remember(seen, crafted), dict)
        assert torch.equal(honest, before)


@CASES
def test_what_it_sends_in_a_round_without_honest_clients_is_finite(case):
    """Nobody honest moves the model, and an attack that cannot know that sends what an update of zeros would make it send."""
    attack = build(case.name, **case.parameters)
    for sees in attack.needs:
        if Sight.GRAPH in sees:  # without a server there is one at least: the node that receives
            continue
        crafted = attack.craft(view(torch.empty(0, 30), f=3, own=normal(3, 30, seed=2), sees=sees))
        assert crafted.shape == (3, 30) and bool(crafted.isfinite().all()) == case.finite


@CASES
def test_sees_no_more_than_it_declares(case):
    """With any sight of its needs withheld the attack cannot work: so it declares nothing that it does not read.

    Where the rest is an alternative of its own, the attack must fail that was promised the sight and finds nothing there,
    and it must work without the promise: so it does not read what it was not granted.
    """
    attack = build(case.name, **case.parameters)
    reads_data_only = not attack.overrides("craft")
    for sees in attack.needs:
        for member in Sight:
            if member in sees and not reads_data_only:
                rest = view(normal(6, 30), sees=sees & ~member)
                spared = first_met(attack.needs, sees & ~member) is not None
                hidden = {
                    name: None for name, field in vars(PoisonView).items() if getattr(field, "sight", 0) == member
                }
                empty = view(normal(6, 30), sees=sees).restrict("test", sees, **hidden)
                with pytest.raises(NotObservable, match="Declare Sight"):
                    attack.craft(empty if spared else rest)
                if spared:
                    assert attack.craft(rest).isfinite().all()


@CASES
@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_crafts_at_any_magnitude(case, magnitude):
    """Where float32 cannot hold a square, an attack must neither fail, nor send NaN, nor send nothing."""
    attack = build(case.name, **case.parameters)
    if not attack.overrides("craft") or not case.finite:
        return
    honest, own = normal(8, 12, seed=1), normal(2, 12, seed=99)
    for rule in ("krum", "nnm >> trimmed_mean"):
        seen = view(honest * magnitude, own=own * magnitude, rule=rule)
        crafted = attack.craft(seen)
        attack.remember(seen, crafted)
        if case.name == "huge_value" and not crafted.isfinite().all():
            continue  # a million times as large as what float32 can hold: the guard drops it
        assert crafted.isfinite().all()
        if case.scale:
            assert torch.allclose(crafted.double() / magnitude, crafted_at_one(attack, rule), rtol=1e-2, atol=1e-2)


@cache
def crafted_at_one(attack, rule):
    """What the attack sends where the updates are of length 1 or so."""
    return attack.craft(view(normal(8, 12, seed=1), own=normal(2, 12, seed=99), rule=rule)).double()


@pytest.fixture(scope="module")
def digits_dealt():
    """What each attack trains on: that it left it alone, the training itself looks after."""
    return deal("softmax")


@CASES
def test_runs_in_a_training_and_is_reproducible(case, digits_dealt):
    training = Training(rounds=2, lr=0.1)
    attack = build(case.name, **case.parameters)

    def final():
        setup = set_up(digits_dealt, training, attack=attack, malicious=(1, 4), told=2, pipeline="median")
        return list(system.run(setup))[-1].model

    system = DecentralizedSGD(graph="complete") if all(Sight.GRAPH in way for way in attack.needs) else Server()
    found = final()
    assert torch.equal(found, final())
    assert found.isfinite().all()


@pytest.mark.parametrize("target", ["honest", "model", "examples"])
def test_an_attack_that_tampers_with_what_it_sees_is_caught(target):
    class Tamper(PoisonAttack):
        name, needs = "tamper", (Sight.HONEST_UPDATES | Sight.MODEL,)

        def poison(self, examples, view):
            if target == "examples":
                examples.y.zero_()
            return examples

        def craft(self, view):
            if target != "examples":
                getattr(view, target).zero_()
            return torch.zeros(view.f, view.dim)

    setup = set_up(deal("softmax"), Training(rounds=1), attack=Tamper(), malicious=(1,), told=1)
    with pytest.raises(ContractError, match="tamper broke its contract: it changed what it was shown, in place"):
        list(Server().run(setup))


def test_an_attack_of_the_wrong_shape_is_caught():
    class Short(PoisonAttack):
        name, needs = "short", (Sight.NOTHING,)

        def craft(self, view):
            return torch.zeros(view.f, 3)

    setup = set_up(deal("softmax"), Training(rounds=1), attack=Short(), malicious=(1,), told=1)
    with pytest.raises(
        ContractError,
        match=r"short broke its contract: craft: expected shape \[1, 650\]; got \[1, 3\]. It is defined in .*test_attacks.py",
    ):
        list(Server().run(setup))


def test_craft_refuses_what_it_cannot_give():
    with pytest.raises(NotAllowed, match="Attacks on data or local training run in a suite"):
        fg.craft("label_flip", THREE, f=1)
