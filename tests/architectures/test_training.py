"""The training core: it equals the plain loop, and its parts do what they say."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
import torch

from fedguard.architectures.server import Server
from fedguard.architectures.wire import drop_not_finite
from fedguard.contracts import (
    ROOT,
    Fate,
    LocalPlan,
    Participation,
    RoundReport,
    SentRound,
    Setup,
    Sight,
    ThreatModel,
    Training,
)
from fedguard.errors import ConfigError
from fedguard.metrics.trajectory import summarize
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.cohort import Cohort, schedule
from tests.parts import setup_of_parts
from tests.root import ROOT as CHECKOUT

spec = importlib.util.spec_from_file_location("plain_loop", CHECKOUT / "examples" / "plain_loop.py")
plain_loop = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain_loop)

CLIENTS = 6


def deal(model="softmax", partition="dirichlet(alpha=0.5)", clients=CLIENTS, root=0) -> Classification:
    known = load_registry()
    return Classification.deal(
        known.build("data", "digits"),
        known.build("model", model),
        known.build("partition", partition),
        clients,
        Rng(3),
        root,
    )


def set_up(task, training, *, participation=None, pipeline="mean", attack=None, malicious=(), told=0, seed=0) -> Setup:
    clients = len(task.sizes)
    built = load_registry().build("attack", attack) if isinstance(attack, str) else attack
    return setup_of_parts(
        task,
        Rng(seed),
        malicious,
        pipeline=load_registry().pipeline(pipeline),
        attack=built,
        assumed_f=told,
        attack_sees=built.needs[0] if built else Sight.NOTHING,
        rule_sees=Sight.EACH_UPDATE.with_implied() | (Sight.ROOT_DATA if task.root else Sight.NOTHING),
        training=training,
        clients=participation or Participation(total=clients),
    )


def twin_of(setup: Setup, task: Classification) -> list[torch.Tensor]:
    """The models of the plain loop, with the same shards, start, choice of clients and batches."""
    training, plan = setup.cell.training, setup.cell.plan
    start = task.initial_model(setup.rng.child("model"))

    def batches(round: int, client: int):
        rng = setup.rng.child("round", round, "client", client)
        return [batch[batch >= 0].tolist() for batch in schedule(plan, task.sizes[client], rng.numpy())]

    return plain_loop.federate(
        setup.task.network.module,
        start,
        [(part.x, part.y) for part in task.parts],
        training.rounds,
        lambda round: setup.cell.clients.choose(setup.rng.child("participation", round), round),
        batches,
        algorithm=setup.cell.algorithm.name,
        **{
            name: getattr(training, name)
            for name in ("lr", "momentum", "worker_momentum", "server_lr", "server_momentum")
        },
    )


TRAININGS = {
    "fedsgd": Training(algorithm="fedsgd", rounds=3, lr=0.5, batch_size=16),
    "fedsgd, momenta": Training(
        algorithm="fedsgd", rounds=3, lr=0.5, batch_size=16, worker_momentum=0.9, server_momentum=0.5, server_lr=0.7
    ),
    "fedsgd, full batch": Training(algorithm="fedsgd", rounds=2, lr=0.5, batch_size=None),
    "fedavg": Training(rounds=2, lr=0.1, batch_size=16),
    "fedavg, 3 epochs, momenta": Training(
        rounds=2,
        local_epochs=3,
        lr=0.05,
        batch_size=16,
        momentum=0.9,
        worker_momentum=0.5,
        server_momentum=0.3,
        server_lr=0.8,
    ),
    "fedavg, full batch": Training(rounds=2, local_epochs=4, lr=0.1, batch_size=None),
    "fedavg, batches larger than clients": Training(rounds=2, lr=0.1, batch_size=5000),
}


DEAR = {("lenet5", "fedavg, 3 epochs, momenta"), ("lenet5", "fedavg, full batch")}
MODELS = pytest.mark.parametrize("model", ["softmax", "mlp(hidden=(32, 16))", "lenet5", "fedavg_cnn"])


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def doubled(task: Classification) -> Classification:
    """The same task on float64 examples."""
    dataset = task.dataset
    train, test = (part.replace(x=part.x.double()) for part in (dataset.train, dataset.test))
    parts = tuple(part.replace(x=part.x.double()) for part in task.parts)
    return dataclasses.replace(task, dataset=dataclasses.replace(dataset, train=train, test=test), parts=parts)


#: Convolutions take seconds for each: `test_cohort_equals_plain_loop.py` has them under every algorithm, with few examples.
PAIRS = [
    pytest.param(model, training, marks=[pytest.mark.slow] * (model == "fedavg_cnn" or (model, training) in DEAR))
    for model in ("softmax", "mlp(hidden=(32, 16))", "lenet5", "fedavg_cnn")
    for training in TRAININGS
]


@pytest.mark.parametrize(("model", "training"), PAIRS)
def test_equals_the_plain_loop(model, training, float64):
    task = doubled(deal(model))
    setup = set_up(task, TRAININGS[training])
    ours = [report.model for report in Server().run(setup)]
    theirs = twin_of(setup, task)
    for round, (mine, plain) in enumerate(zip(ours, theirs, strict=True), start=1):
        assert (mine - plain).abs().max() < 1e-10, f"round {round}"
    assert (ours[-1] - task.initial_model(setup.rng.child("model"))).abs().max() > 1e-3


@MODELS
def test_equals_the_plain_loop_in_float32(model):
    """To 1e-5 as long as no tie in a ReLU or a pooling falls the other way, which the first round shows."""
    task, training = deal(model), TRAININGS["fedavg"]
    setup = set_up(task, training.model_copy(update={"rounds": 1}))
    (ours,), (theirs,) = [report.model for report in Server().run(setup)], twin_of(setup, task)
    assert (ours - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_equals_the_plain_loop_under_partial_participation(sampling):
    task = deal("softmax", clients=12)
    participation = Participation(total=12, per_round=0.5, sampling=sampling)
    setup = set_up(task, TRAININGS["fedsgd, momenta"], participation=participation)
    ours = [report.model for report in Server().run(setup)]
    assert max((a - b).abs().max() for a, b in zip(ours, twin_of(setup, task), strict=True)) < 1e-5


def test_update_of_a_client_does_not_depend_on_who_else_trains():
    task, plan = deal("softmax"), LocalPlan(lr=0.1, batch_size=16, epochs=2)
    model = task.initial_model(Rng(0))
    everyone, alone = torch.empty(CLIENTS, task.dim), torch.empty(1, task.dim)
    task.local_updates(model, range(CLIENTS), plan, Rng(5), everyone)
    task.local_updates(model, [4], plan, Rng(5), alone)
    assert torch.allclose(everyone[4], alone[0], atol=1e-6)


def test_schedules_use_every_example_once_per_epoch():
    for size, batch in ((10, 4), (4, 4), (3, 16), (1, 1)):
        one = schedule(LocalPlan(lr=1, batch_size=batch, epochs=3), size, Rng(0).numpy())
        used = one[one >= 0]
        assert sorted(used.tolist()) == sorted(list(range(size)) * 3)
        for epoch in one.reshape(3, -1):
            assert sorted(epoch[epoch >= 0].tolist()) == list(range(size))
    drawn = schedule(LocalPlan(lr=1, batch_size=5, steps=4), 8, Rng(0).numpy())
    assert drawn.shape == (4, 5)
    assert all(len(set(batch)) == 5 for batch in drawn.tolist())


def test_participation():
    fixed = Participation(total=20, per_round=0.25)
    draws = [fixed.choose(Rng(0).child(round), round) for round in range(2000)]
    assert {len(chosen) for chosen in draws} == {5}
    counts = torch.bincount(torch.tensor([client for chosen in draws for client in chosen]))
    assert (counts - 500).abs().max() < 100  # five standard deviations
    poisson = Participation(total=20, per_round=5, sampling="poisson")
    sizes = torch.tensor([len(poisson.choose(Rng(1).child(round), round)) for round in range(4000)]).double()
    assert abs(sizes.mean() - 5) < 0.15
    assert abs(sizes.var() - 20 * 0.25 * 0.75) < 0.4
    assert Participation(total=7).choose(Rng(0), 1) == tuple(range(7))


def test_server_drops_what_is_not_finite_and_lowers_f_by_as_many():
    task = deal("softmax")
    setup = set_up(task, TRAININGS["fedsgd"], pipeline="trimmed_mean", attack="nan", malicious=(1, 4), told=2)
    reports = list(Server().run(setup))
    assert {report.not_finite for report in reports} == {(1, 4)}
    assert {report.assumed_f for report in reports} == {0}
    assert all(report.model.isfinite().all() and report.abandoned is None for report in reports)


@pytest.mark.parametrize("defense", ["rlr", "mean", "nnm >> rlr", "phocas", "bulyan", "lasa"])
@pytest.mark.parametrize("attack", ["random_update(scale=3e38)", "huge_value(factor=1e38,count=1)"])
def test_values_that_do_not_add_up_are_dropped_and_counted_apart(defense, attack):
    """Three finite updates of 3e38 have no finite sum; the record says that the guard met them, and not the rule."""
    setup = set_up(deal("softmax"), TRAININGS["fedsgd"], pipeline=defense, attack=attack, malicious=(4,), told=0)
    reports = list(Server().run(setup))
    assert all(report.model.isfinite().all() and report.abandoned is None for report in reports)
    assert {report.not_finite for report in reports} == {(4,)}
    assert (
        sum(len(report.of_fate(Fate.TOO_LARGE)) for report in reports) == summarize(reports)["rounds"]["too_large"] > 0
    )
    assert summarize(reports)["rounds"]["not_finite"] + summarize(reports)["rounds"]["too_large"] == len(reports)


def test_dropping_rows_keeps_each_client_with_its_row():
    rows = torch.arange(6.0)[:, None].repeat(1, 3)
    rows[[0, 3, 5], 1] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    sent = drop_not_finite(SentRound(1, torch.zeros(3), rows, (10, 11, 12, 13, 14, 15), fates={3: Fate.LATE}))
    assert sent.fates == {3: Fate.LATE} | dict.fromkeys((10, 13, 15), Fate.NOT_FINITE)
    assert {client: row[0].item() for client, row in zip(sent.senders, sent.updates, strict=True)} == {
        11: 1,
        12: 2,
        14: 4,
    }


def test_a_table_of_messages_tells_who_has_a_row_and_who_takes_part():
    rows = torch.arange(3.0)[:, None].repeat(1, 2)
    sent = SentRound(1, torch.zeros(2), rows, (4, 2, 7), frozenset({2}), {3: Fate.LATE, 2: Fate.SILENT})
    assert sent.senders == (4, 2, 7) and sent.clients == (2, 3, 4, 7)
    left = sent.without(sent.of_fate(Fate.SILENT, Fate.LATE))
    assert dict(zip(left.senders, left.updates[:, 0].tolist(), strict=True)) == {4: 0.0, 7: 2.0}
    assert (left.clients, left.fates, left.malicious) == (sent.clients, sent.fates, sent.malicious)


def test_who_reached_the_server_and_is_in_no_row_is_counted_by_updates():
    """In simulated time a client may be behind a row and send one more update that is left out."""
    report = RoundReport(round=1, model=torch.zeros(1), clients=(3, 1, 2, 3), behind=((1, 3),))
    assert sorted(report.without_row) == [2, 3]


def test_a_round_without_enough_updates_changes_nothing_and_says_so():
    task = deal("softmax", clients=8)
    participation = Participation(total=8, per_round=2, sampling="poisson")
    setup = set_up(task, TRAININGS["fedsgd"], participation=participation, pipeline="trimmed_mean", told=1)
    setup = setup.with_parts(training=Training(rounds=40, lr=0.5))
    models = [task.initial_model(setup.rng.child("model"))]
    abandoned = 0
    for report in Server().run(setup):
        if report.abandoned:
            abandoned += 1
            assert torch.equal(report.model, models[-1])
            assert "no update reached" in report.abandoned or "needs n >= 2f + 1" in report.abandoned
        models.append(report.model)
    assert 0 < abandoned < 40


def test_root_data_are_set_aside_and_used_by_the_server_alone():
    task = deal("softmax", root=100)
    assert len(task.root) == 100
    assert sum(task.sizes) == 1437 - 100
    update = torch.empty(1, task.dim)
    task.local_updates(task.initial_model(Rng(0)), [ROOT], LocalPlan(lr=1, steps=1), Rng(0), update)
    own = Cohort(task.network, [task.root])
    expected = torch.empty(1, task.dim)
    own.train(task.initial_model(Rng(0)), [0], LocalPlan(lr=1, steps=1), Rng(0), expected)
    assert torch.allclose(update, expected, atol=1e-7)
    with pytest.raises(ConfigError, match="Set server.root_data"):
        deal("softmax").local_updates(update[0], [ROOT], LocalPlan(lr=1, steps=1), Rng(0), update)


def test_first_and_last_round_of_an_attack():
    task = deal("softmax")
    setup = set_up(task, Training(rounds=6), attack="gaussian", malicious=(0,), told=1)
    setup = setup.with_parts(threat=ThreatModel(first_round=3, last_round=4))
    assert [len(report.malicious) for report in Server().run(setup)] == [0, 0, 1, 1, 0, 0]


def test_models_have_the_sizes_of_their_papers():
    sizes = {
        "softmax": 784 * 10 + 10,
        "mlp(hidden=(200, 200))": 199_210,
        "lenet5": 61_706,
        "fedavg_cnn": 1_663_370,
    }
    for model, size in sizes.items():
        module = load_registry().build("model", model).build((1, 28, 28), 10)
        assert sum(parameter.numel() for parameter in module.parameters()) == size, model
        assert module(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_initial_model_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = deal("softmax").initial_model(Rng(0))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, deal("softmax").initial_model(Rng(0)))
    assert not torch.equal(first, deal("softmax").initial_model(Rng(1)))
