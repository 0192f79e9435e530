"""Training with differential privacy: DP-SGD by hand, the laws of its draws, what is refused, and what records say."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2

from fedguard.aggregation import aggregate
from fedguard.architectures.rule_context import ColluderPipeline
from fedguard.architectures.server import Server
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.protocol import protocol_in_words
from fedguard.bench.running.trial import run_trial
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    DPSGD,
    ROWS,
    ClientContext,
    ClientTransform,
    LocalPlan,
    Participation,
    Pipeline,
    RuleContext,
    Sight,
    Training,
    WeightRule,
)
from fedguard.defenses.aggregators.inverse_variance import InverseVariance
from fedguard.errors import ConfigError, NotObservable
from fedguard.privacy.kinds.client import ClientNoise
from fedguard.privacy.kinds.record import PrivacyLevel, RecordNoise
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import schedule
from tests.architectures.test_training import deal, set_up

RECORD = {"kind": "record", "noise_multiplier": 1.0, "sample_rate": 0.25}
CLIENT = {"kind": "client", "noise_multiplier": 1.0}


def plan(*, q=0.3, clip=0.5, noise=0.8, **others) -> LocalPlan:
    return LocalPlan(
        **{"lr": 0.2, "batch_size": 7, "steps": 3, **others}, private=DPSGD(sample_rate=q, levels=((clip, noise),))
    )


def cell(*, pipeline=None, **settings) -> PlannedCell:
    """A small cell without attack."""
    built = build_cell(
        CellConfig.model_validate({"clients": {"total": 6}, "training": {"rounds": 2}, **settings}), load_registry()
    )
    return built.with_parts(pipeline=pipeline) if pipeline else built


def by_hand(task, model, client, plan, rng) -> torch.Tensor:
    """What the client moves by: one example after the other, one step after the other."""
    module, examples = task.network.module, task.examples(client)
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    generator = rng.child("client", client, "noise").torch()
    ((clip, noise_multiplier),) = plan.private.levels
    weights, velocity = model.clone(), torch.zeros_like(model)
    for batch in schedule(plan, len(examples), rng.child("client", client).numpy()):
        total = torch.zeros_like(model)
        for example in batch[batch >= 0].tolist():
            at = weights.clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy(task.logits(at, examples.x[[example]]), examples.y[[example]])
            (gradient,) = torch.autograd.grad(loss, at)
            total += gradient * min(1.0, clip / float(gradient.norm()))
        std = clip * noise_multiplier
        noise = torch.cat([torch.normal(0.0, std, shape, generator=generator).reshape(-1) for shape in shapes])
        velocity = plan.momentum * velocity + (total + noise) / plan.batch_size
        weights = weights - plan.lr * velocity
    return weights - model


def trained(task, client, plan, rng=None) -> torch.Tensor:
    out = torch.empty(1, task.dim)
    task.local_updates(task.initial_model(Rng(0)), [client], plan, rng or Rng(1), out)
    return out[0]


# DP-SGD


@pytest.mark.parametrize("model", ["softmax", "mlp(hidden=[8])", "lenet5"])
def test_gradients_of_single_examples_are_those_of_a_loop(model):
    task = deal(model, clients=6)
    trained(task, 0, plan())
    module, examples = task._cohort._private._module, task.examples(2)[torch.arange(5)]
    x = examples.x.clone().requires_grad_()  # or torch warns of it
    weights = task._cohort._private._flat.clone()
    module.zero_grad()
    torch.nn.functional.cross_entropy(module(x), examples.y, reduction="sum").backward()
    found = torch.cat([parameter.grad_sample.flatten(1) for parameter in module.parameters()], dim=1)
    for row, example in zip(found, range(5), strict=True):
        at = weights.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(task.logits(at, examples.x[[example]]), examples.y[[example]])
        (gradient,) = torch.autograd.grad(loss, at)
        assert (row - gradient).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("softmax", {"steps": 1}),
        ("softmax", {"momentum": 0.9}),
        ("softmax", {"steps": None, "epochs": 2, "clip": 50.0}),
        ("softmax", {"q": 0.003, "steps": 6}),  # some batches are empty
        ("mlp(hidden=[8])", {"momentum": 0.5}),
        ("lenet5", {"clip": 3.0}),
    ],
)
def test_a_client_moves_by_clipped_gradients_with_noise_over_the_public_batch(model, settings):
    """Opacus clips by C / (|g| + 1e-6), to which the loop is held."""
    task, private = deal(model, clients=6), plan(**settings)
    expected = by_hand(task, task.initial_model(Rng(0)), 3, private, Rng(1))
    assert torch.allclose(trained(task, 3, private), expected, atol=3e-6)
    if settings.get("q") == 0.003:
        batches = schedule(private, task.sizes[3], Rng(1).child("client", 3).numpy())
        assert (batches < 0).all(axis=1).any()


def test_neighboring_data_sets_meet_the_same_noise_the_same_steps_and_the_same_divisor():
    """With q = 1 and one step, all that a left-out example changes is its own clipped gradient over B."""
    task, private = deal("softmax", clients=6), plan(q=1.0, steps=1, noise=2.0)
    whole = task.examples(0)
    everything, model = trained(task, 0, private), task.initial_model(Rng(0))
    for left_out in (0, 7):
        rest = whole[torch.tensor([row for row in range(len(whole)) if row != left_out])]
        fewer = trained(task.with_examples({0: rest}), 0, private)
        at = model.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(task.logits(at, whole.x[[left_out]]), whole.y[[left_out]])
        (gradient,) = torch.autograd.grad(loss, at)
        clipped = gradient * min(1.0, 0.5 / float(gradient.norm()))
        assert torch.allclose(everything - fewer, -0.2 * clipped / 7, atol=1e-6)
    epochs = plan(q=0.3, steps=None, epochs=2)
    assert {len(schedule(epochs, size, Rng(0).numpy())) for size in (1, 2, 30, 1000)} == {6}


def test_an_example_at_which_a_chosen_model_overflows_adds_nothing_rather_than_give_itself_away():
    """A malicious server can send weights at which some inputs alone have logits of infinity, and a gradient of NaN."""
    task, private = deal("softmax", clients=6), plan(q=1.0, steps=1, noise=2.0)
    whole = task.examples(0)
    pixels = whole.x.flatten(1)[0].topk(2).indices
    trap = torch.zeros(task.dim)
    trap[pixels], trap[64 + pixels] = 3e38, -3e38
    finite = torch.tensor([bool(task.logits(trap, x[None]).isfinite().all()) for x in whole.x])
    assert 0 < int(finite.sum()) < len(whole)

    def moved(examples):
        out = torch.empty(1, task.dim)
        task.with_examples({0: examples}).local_updates(trap, [0], private, Rng(1), out)
        return out[0]

    assert moved(whole).isfinite().all()
    assert torch.allclose(moved(whole), moved(whole[finite.nonzero()[:, 0]]), atol=1e-6)


def test_each_example_is_in_each_batch_with_the_same_probability_on_its_own():
    steps, size, q = 3000, 40, 0.15
    batches = schedule(plan(q=q, steps=steps), size, Rng(4).numpy())
    taken = np.zeros((steps, size), bool)
    for row, batch in zip(taken, batches, strict=True):
        row[batch[batch >= 0]] = True
        assert len(set(batch[batch >= 0])) == (batch >= 0).sum()
    often = taken.sum(axis=0)
    assert chi2.sf(((often - steps * q) ** 2 / (steps * q * (1 - q))).sum(), size) > 1e-4
    sizes = np.bincount(taken.sum(axis=1), minlength=size + 1)
    likely = steps * binom.pmf(np.arange(size + 1), size, q)
    common = likely > 5
    assert chi2.sf(((sizes - likely)[common] ** 2 / likely[common]).sum(), common.sum()) > 1e-4
    pairs = np.corrcoef(taken.T.astype(float)) - np.eye(size)
    assert np.abs(pairs).max() < 5 / math.sqrt(steps)


def test_a_step_without_examples_is_noise_of_the_stated_law_for_each_client_its_own():
    task, private = deal("softmax", clients=6), plan(q=1e-9, clip=0.5, noise=3.0, steps=4)
    rows = [trained(task, client, private, Rng(seed)).double() for client in range(3) for seed in range(2)]
    std = 0.2 * math.sqrt(4) * 0.5 * 3.0 / 7
    for row in rows:
        assert 1e-4 < chi2.cdf(float((row / std).square().sum()), len(row)) < 1 - 1e-4
    for one, other in itertools.combinations(rows, 2):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 5 / math.sqrt(task.dim)


def test_each_client_trains_at_its_own_level():
    task = deal("softmax", clients=6)
    levels = DPSGD(sample_rate=1e-9, levels=((1.0, 1.0), (2.0, 5.0)))
    private = dataclasses.replace(plan(), private=levels)
    lengths = [float(trained(task, client, private).norm()) for client in range(4)]
    assert lengths[1] / lengths[0] == pytest.approx(10, rel=0.2)
    assert lengths[3] / lengths[2] == pytest.approx(10, rel=0.2)


def test_private_training_takes_a_public_batch_size():
    with pytest.raises(ConfigError, match="expected a public batch_size"):
        trained(deal("softmax", clients=6), 0, plan(batch_size=None))


# The server


def test_levels_reach_the_rule_beside_their_clients():
    met: list[tuple] = []

    class Note(WeightRule):
        name, needs = "note", ROWS

        def weights(self, gram, context):
            met.append((context.clients, context.noise.tolist()))
            return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)

    noise = RecordNoise(levels=(PrivacyLevel(noise_multiplier=1.0), PrivacyLevel(noise_multiplier=3.0, clip=0.5)))
    setup = set_up(deal("softmax", clients=6), Training(rounds=2), participation=Participation(total=6, per_round=4))
    [*Server().run(setup.with_parts(pipeline=Pipeline((Note(),)), noise=noise))]
    for clients, scales in met:
        assert len(clients) == 4
        assert scales == [1.0 if client % 2 == 0 else 1.5 for client in clients]


def test_weights_by_inverse_variance_leave_the_least_noise():
    noise = torch.tensor([1.0, 2.0, 4.0, 0.5], dtype=torch.float64)
    rows = torch.randn(4, 9, generator=Rng(0).torch())
    context = RuleContext(
        "server",
        Sight.EACH_UPDATE,
        f=0,
        round=1,
        rng=Rng(0),
        state={},
        layers=(9,),
        shape=(2,),
        server_lr=1.0,
        noise=noise,
    )
    found = aggregate(Pipeline((InverseVariance(),)), rows, context).weights
    expected = [1 / 1, 1 / 4, 1 / 16, 1 / 0.25]
    assert found.tolist() == pytest.approx([one / sum(expected) for one in expected])
    least = float((found**2 * noise**2).sum())
    for shift in torch.randn(20, 4, generator=Rng(1).torch(), dtype=torch.float64):
        other = found + 0.1 * (shift - shift.mean())
        assert float((other**2 * noise**2).sum()) > least


def test_colluders_know_that_the_server_clips():
    setup = set_up(deal("softmax", clients=6), Training(rounds=1), attack="ipm", malicious=(0,))
    noisy = setup.with_parts(noise=ClientNoise(clip=0.5, noise_multiplier=1.0))
    met: list[torch.Tensor] = []

    class Ask(type(setup.cell.attack)):
        def craft(self, view):
            rows = torch.zeros(view.n, view.dim)
            rows[0, 0], rows[1, 1] = 0.25, 100.0
            met.append(view.n * view.rule(rows)[:2])
            return view.honest[: view.f].clone()

    report = next(iter(Server().run(noisy.with_parts(attack=Ask(), attack_sees=Server.exposes.clients))))
    assert met[0].tolist() == pytest.approx([0.25, 0.5])
    assert report.clip == 0.5 and report.chosen == tuple(range(6))
    assert (
        ColluderPipeline(setup, torch.zeros(setup.task.dim), 1, (), (0, 1), ())(torch.eye(2, setup.task.dim))[0] == 0.5
    )


def test_malicious_updates_are_clipped_and_an_empty_round_still_shows_noise():
    task = deal("softmax", clients=8)
    noise = ClientNoise(clip=0.5, noise_multiplier=0.01)
    few = Participation(total=8, per_round=1, sampling="poisson")
    setup = set_up(task, Training(rounds=8), participation=few, attack="sign_flip", malicious=range(8))
    setup = setup.with_parts(attack=load_registry().build("attack", "sign_flip(scale=1e6)"), noise=noise)
    before = task.initial_model(setup.rng.child("model"))
    for report in Server().run(setup):
        moved, before = float((report.model - before).norm()), report.model
        assert report.abandoned is None
        assert 0 < moved < 0.5 * len(report.chosen) + 0.5 * 0.01 * 2 * math.sqrt(task.dim)
        if not report.chosen:
            empty = moved
    assert empty == pytest.approx(0.5 * 0.01 * math.sqrt(task.dim), rel=0.15)


# Refusals


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"protocol": {"privacy": CLIENT}, "defense": "median"}, "made for the sensitivity of a mean, and median is another rule"),
        ({"protocol": {"privacy": CLIENT}, "defense": "nnm >> mean"}, "made for the sensitivity of a mean"),
        ({"protocol": {"privacy": CLIENT, "secure_aggregation": "full"}}, "Let the clients add the noise themselves (privacy: {name: distributed})"),
        ({"protocol": {"privacy": RECORD}, "defense": "weighted_mean"}, "is told how many examples each client has"),
    ],
)  # fmt: skip
def test_what_noise_does_not_cover_is_refused(settings, reason):
    assert any(reason in one for one in cell(**settings).verdict.reasons)


def test_what_noise_covers_may_run():
    for settings in (
        {"protocol": {"privacy": CLIENT}, "defense": "client_clipping(bound=1) >> mean"},
        {"protocol": {"privacy": RECORD}, "defense": "client_clipping(bound=1) >> nnm >> median"},
        {"protocol": {"privacy": RECORD, "secure_aggregation": "full"}, "clients": {"total": 20}},
    ):
        assert cell(**settings).verdict.reasons == ()


def test_weights_by_noise_are_refused_without_levels():
    rule = Pipeline((InverseVariance(),))
    assert "there are none" in cell(pipeline=rule, protocol={"privacy": RECORD}).verdict.reasons[0]
    levels = {"kind": "record", "levels": [{"noise_multiplier": 1.0}, {"noise_multiplier": 4.0}]}
    assert cell(pipeline=rule, protocol={"privacy": levels}).verdict.reasons == ()


def test_a_client_does_not_look_at_its_examples_once_noise_hides_them():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Looks(ClientTransform):
        name = "looks"

        def apply(self, update, context: ClientContext):
            return update * context.examples.x.mean()

    class Owns(Looks):
        reads_data = True

    mean = load_registry().pipeline("mean").rule
    refused = cell(pipeline=Pipeline((Owns(), mean)), protocol={"privacy": RECORD}).verdict.reasons
    assert "looks looks at a client's examples beside DP-SGD" in refused[0]
    setup = set_up(deal("softmax", clients=6), Training(rounds=1))
    setup = setup.with_parts(pipeline=Pipeline((Looks(), mean)))
    [*Server().run(setup)]
    private = cell(protocol={"privacy": RECORD}).noise
    with pytest.raises(NotObservable, match="looks read 'examples'"):
        [*Server().run(setup.with_parts(noise=private))]


@pytest.mark.parametrize(
    ("privacy", "others", "message"),
    [
        ({"kind": "record"}, {}, "privacy: expected exactly one of noise_multiplier and epsilon; got neither"),
        ({**RECORD, "epsilon": 1.0}, {}, "privacy: expected exactly one of noise_multiplier and epsilon; got both"),
        ({**RECORD, "levels": [{"epsilon": 1.0}]}, {}, "in each of the levels; got it beside them too"),
        ({"kind": "record", "levels": [{"epsilon": 1.0}, {}]}, {}, "privacy.levels[1]: expected exactly one"),
        (RECORD, {"training": {"batch_size": None}}, "must not tell how many examples a client has; got none. Set training.batch_size"),
        ({"kind": "client"}, {}, "expected exactly one of noise_multiplier and epsilon; got neither"),
        ({"kind": "distributed"}, {}, "expected noise_multiplier or epsilon; got neither"),
        ({**CLIENT, "noise": {"bands": 2}}, {}, "bands: expected at most the 1 rounds"),
        ({**CLIENT, "noise": {"bands": 4}}, {"clients": {"total": 6, "per_round": 2, "sampling": "cyclic"}}, "at most the 3 rounds from one participation of a client to its next; got 4. Set clients.sampling: cyclic with clients.per_round of at most 1"),
        ({**CLIENT, "noise": {"bands": 3}}, {"clients": {"total": 6, "per_round": 2, "sampling": "poisson"}}, "bands: expected at most the 1 rounds"),
        ({**CLIENT, "clip": {"initial": 1.0}, "noise": {"bands": 2}}, {"clients": {"total": 6, "per_round": 2, "sampling": "cyclic"}}, "correlated noise takes a fixed clip"),
        ({**CLIENT, "clip": {"bit_noise": 0.5}}, {}, "bit_noise: expected more than half of the noise multiplier 1"),
        ({"kind": "client", "epsilon": 2.0, "clip": {"bit_noise": 0.3}}, {}, "bit_noise: expected more than half of the noise"),
    ],
)  # fmt: skip
def test_noise_that_cannot_be_made_is_an_error(privacy, others, message):
    secure = "full" if privacy["kind"] == "distributed" else "none"
    with pytest.raises(ConfigError) as caught:
        cell(protocol={"privacy": privacy, "secure_aggregation": secure}, **others)
    assert str(caught.value).startswith("protocol: ")
    assert message in str(caught.value)


def test_settings_of_noise_are_part_of_the_identity():
    changes = [
        "none", RECORD, {**RECORD, "clip": 2.0}, {**RECORD, "sample_rate": 0.3}, {"kind": "record", "epsilon": 1.0},
        {"kind": "record", "levels": [{"epsilon": 1.0}]}, CLIENT, {**CLIENT, "clip": {"quantile": 0.5}}, {**CLIENT, "delta": 1e-6},
    ]  # fmt: skip
    cells = [cell(protocol={"privacy": privacy}) for privacy in changes]
    assert len({one.id for one in cells}) == len(cells)
    for one in cells:
        assert build_cell(CellConfig.model_validate(one.canonical), load_registry()).id == one.id


# Records


def test_a_record_of_dp_sgd_says_what_it_proves():
    """20 rounds of 10 steps with q = 0.1 and z = 2: 3.37 at delta = 1e-5."""
    privacy = {"kind": "record", "noise_multiplier": 2.0, "sample_rate": 0.1, "clip": 0.7}
    private = cell(protocol={"privacy": privacy}, training={"rounds": 20}, evaluation={"every": 20})
    record, _ = run_trial(private, 0, {})
    found, card = record["result"]["privacy"], record["threat_card"]
    assert found["epsilon"] == pytest.approx(3.37, abs=0.02) and card["epsilon"] == found["epsilon"]
    expected = {
        "kind": "record", "why": None, "unit": "record", "relation": "add/remove", "sampling": "poisson", "delta": 1e-5,
        "view": "each client's updates", "noise_multiplier": 2.0, "clip": 0.7, "rounds": 20, "steps_in_a_round": 10,
        "divided_by": 16,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    assert "PRV" in found["accountant"] and found["assumptions"]
    assert (
        card["privacy"] == "record"
        and card["noise"] == "client"
        and "a record's epsilon is not" in card["epsilon_note"]
    )
    (words,) = protocol_in_words(private)
    assert "10 steps a round" in words and "z = 2 and clip 0.7" in words


def test_participation_is_counted_as_it_was_and_levels_by_themselves():
    levels = {
        "kind": "record",
        "sample_rate": 0.25,
        "levels": [{"noise_multiplier": 4.0}, {"noise_multiplier": 1.0, "clip": 0.5}],
    }
    clients = {"total": 6, "per_round": 2, "sampling": "cyclic"}
    record, _ = run_trial(cell(protocol={"privacy": levels}, clients=clients, training={"rounds": 4}), 0, {})
    found = record["result"]["privacy"]
    assert found["rounds"] == 2
    strict, loose = found["levels"]
    assert strict["epsilon"] < loose["epsilon"] == found["epsilon"]
    assert (loose["clip"], loose["noise_multiplier"]) == (0.5, 1.0)


def test_one_seed_gives_one_record():
    for privacy in (RECORD, {**CLIENT, "clip": {"initial": 0.3}}):
        first, second = (run_trial(cell(protocol={"privacy": privacy}), 3, {})[0] for _ in range(2))
        assert reproducible(first) == reproducible(second)
        assert reproducible(first) != reproducible(run_trial(cell(protocol={"privacy": privacy}), 4, {})[0])


def test_a_record_of_a_trusted_server_says_what_it_proves():
    adaptive = {"kind": "client", "epsilon": 8.0, "clip": {"initial": 0.2}}
    private = cell(protocol={"privacy": adaptive}, clients={"total": 12, "per_round": 6, "sampling": "poisson"})
    record, _ = run_trial(private, 0, {})
    found, card = record["result"]["privacy"], record["threat_card"]
    assert 7.9 < found["epsilon"] <= 8.0
    assert (found["unit"], found["relation"], found["sampling"]) == ("client", "add/remove", "poisson")
    assert found["view"] == "the published models" and found["divided_by"] == 6
    assert found["clips"]["first"] == 0.2 and found["clip"] != 0.2 and found["bit_noise"] > 0
    assert card["noise"] == "server" and "trusted server" in card["epsilon_note"]
    assert "epsilon_without_proof" not in [flag["flag"] for flag in record["flags"]]
    assert "sampling: poisson" in protocol_in_words(private)[0]


def test_colluders_who_see_honest_updates_leave_no_guarantee():
    settings = {"protocol": {"privacy": CLIENT}, "clients": {"total": 6, "malicious": 1}}
    record, _ = run_trial(cell(attack="ipm", **settings), 0, {})
    assert record["result"]["privacy"]["epsilon"] is None
    assert "Take honest_updates from threat.knowledge" in record["result"]["privacy"]["why"]
    blind, _ = run_trial(cell(attack="sign_flip", **settings, threat={"knowledge": ["own_data", "model"]}), 0, {})
    assert blind["result"]["privacy"]["epsilon"] > 0 and blind["result"]["privacy"]["why"] is None


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_colluders_who_know_how_many_take_part_leave_no_amplification(sampling):
    """What they send may depend on the number, and so on whether one client was drawn: alie does, by n and f."""
    clients = {"total": 12, "per_round": 6, "sampling": sampling, "malicious": 2}
    settings = {"protocol": {"privacy": CLIENT}, "clients": clients, "threat": {"knowledge": ["own_data", "model"]}}
    attacked, _ = run_trial(cell(attack="alie", **settings), 0, {})
    assert attacked["result"]["privacy"]["epsilon"] is None
    assert "the malicious clients know how many take part" in attacked["result"]["privacy"]["why"]
    peaceful, _ = run_trial(cell(**settings), 0, {})
    assert peaceful["result"]["privacy"]["epsilon"] > 0


def test_a_model_whose_gradients_depend_on_the_batch_is_refused():
    """PRECODE weighs its KL term by beta over the size of the batch, so one example changes the gradients of the others."""
    private = {"protocol": {"privacy": RECORD}}
    reasons = cell(task={"model": {"name": "precode", "hidden": [16], "bottleneck": 8}}, **private).verdict.reasons
    assert any("gives an example another gradient in another batch" in reason for reason in reasons)
    assert not cell(
        task={"model": {"name": "precode", "hidden": [16], "bottleneck": 8, "beta": 0.0}}, **private
    ).verdict.reasons
    assert not cell(task={"model": {"name": "precode", "hidden": [16], "bottleneck": 8}}).verdict.reasons


def test_a_target_finds_the_noise_that_clients_share_out():
    target = {"kind": "distributed", "epsilon": 6.0, "clip": 0.5}
    masked = cell(protocol={"secure_aggregation": "full", "privacy": target}, clients={"total": 12})
    found = run_trial(masked, 0, {})[0]["result"]["privacy"]
    assert 5.9 < found["epsilon"] <= 6.0
    given = {**target, "noise_multiplier": found["noise_multiplier"], "epsilon": None}
    same = cell(protocol={"secure_aggregation": "full", "privacy": given}, clients={"total": 12})
    assert run_trial(same, 0, {})[0]["result"]["privacy"]["epsilon"] == pytest.approx(found["epsilon"])
    assert "for epsilon = 6 at delta = 1e-05" in " ".join(protocol_in_words(masked))


@pytest.mark.parametrize("kind", ["record", "client"])
def test_little_noise_lets_the_model_learn_and_much_does_not(kind):
    def accuracy(noise_multiplier):
        privacy = {"kind": kind, "noise_multiplier": noise_multiplier}
        settings = {"training": {"rounds": 8, "lr": 0.3}, "clients": {"total": 6}, "evaluation": {"every": 8}}
        return run_trial(cell(protocol={"privacy": privacy}, **settings), 0, {})[0]["result"]["final_accuracy"]

    assert accuracy(0.05) > 0.75
    assert accuracy(50.0) < 0.35


def test_cards_are_plain_without_noise():
    card = threat_card(cell())
    assert card["privacy"] == "none" and card["noise"] is None
