"""The federated algorithms: each equals a plain loop written from its paper; and who takes part when."""

from __future__ import annotations

import copy
import dataclasses
import math
import re

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.algorithms.feddyn import FedDyn
from fedguard.algorithms.fednova import FedNova
from fedguard.algorithms.fedper import FedPer, last_layer
from fedguard.algorithms.fedprox import FedProx
from fedguard.algorithms.scaffold import Scaffold
from fedguard.architectures.masking.full import FullMasking
from fedguard.architectures.server import Server
from fedguard.bench.running.trial import run_trial
from fedguard.config import Document, build_cell, plan, read_suite
from fedguard.config.cells import PlannedCell
from fedguard.config.document import parse_yaml
from fedguard.config.layout import override
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    Dataset,
    Dropout,
    Examples,
    Fate,
    FedAvg,
    Participation,
    PoisonAttack,
    Protocol,
    Setup,
    Sight,
    Stay,
    Training,
)
from fedguard.contracts.optimizers import Adagrad, Adam, Yogi
from fedguard.errors import ConfigError, FedGuardError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.cohort import schedule
from fedguard.tasks.network import FlatNetwork
from tests.parts import setup_of_parts
from tests.root import ROOT

CLASSES, FEATURES = 3, 6
RAGGED = (5, 12, 3, 9, 7)
MODELS = pytest.mark.parametrize("model", ["softmax", "mlp(hidden=(5,))", "mlp(hidden=(6, 4))"])


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def deal(model="mlp(hidden=(5,))", sizes=RAGGED, seed=0) -> Classification:
    """A few examples at each client, whose labels are not what their inputs say, so that every client pulls elsewhere."""
    draw = torch.Generator().manual_seed(seed)

    def examples(size: int) -> Examples:
        x = torch.randn(size, FEATURES, generator=draw)
        return Examples(x, torch.randint(CLASSES, (size,), generator=draw))

    built = load_registry().build("model", model)
    dataset = Dataset(examples(1), examples(40), CLASSES, (-9.0, 9.0))
    return Classification(
        dataset, tuple(map(examples, sizes)), None, built, FlatNetwork(built, (FEATURES,), CLASSES, Rng(0))
    )


def set_up(task, training, *, participation=None, pipeline="mean", protocol=None, attack=None, malicious=()) -> Setup:
    clients = len(task.sizes)
    masked = protocol is not None and protocol.masked
    return setup_of_parts(
        task,
        Rng(4),
        malicious,
        pipeline=load_registry().pipeline(pipeline),
        attack=attack,
        assumed_f=len(malicious),
        attack_sees=attack.needs[0] if attack else Sight.NOTHING,
        rule_sees=Sight.SUM if masked else Sight.EACH_UPDATE.with_implied(),
        training=training,
        clients=participation or Participation(total=clients),
        protocol=protocol or Protocol(),
    )


class Federation:
    """The plain side of a training: gradients by autograd on a copy of the module, batches as the clients draw them."""

    def __init__(self, setup: Setup, loss=cross_entropy) -> None:
        self.setup, self.training, self.loss = setup, setup.cell.training, loss
        self.module = copy.deepcopy(setup.task.module)
        self.start = setup.task.initial_model(setup.rng.child("model"))
        self.lr, self.count = setup.cell.training.lr, len(setup.task.sizes)

    def gradient(self, w, x, y):
        offset = 0
        for parameter in self.module.parameters():
            parameter.data = w[offset : offset + parameter.numel()].view_as(parameter).clone()
            offset += parameter.numel()
        found = torch.autograd.grad(self.loss(self.module(x), y), list(self.module.parameters()))
        return torch.cat([part.reshape(-1) for part in found])

    def batches(self, round, client):
        draw = self.setup.rng.child("round", round, "client", client).numpy()
        part = self.setup.task.examples(client)
        for batch in schedule(self.training.plan(), len(part), draw):
            rows = batch[batch >= 0].tolist()
            yield part.x[rows], part.y[rows]

    def full_gradient(self, w):
        """Of the mean of the clients' losses."""
        parts = [self.setup.task.examples(client) for client in range(self.count)]
        return sum(self.gradient(w, part.x, part.y) for part in parts) / self.count


def fedprox(federation, rounds, mu):
    x, models = federation.start, []
    for round, (sampled, _) in enumerate(rounds, start=1):
        moved = []
        for i in sampled:
            y = x.clone()
            for batch in federation.batches(round, i):
                y = y - federation.lr * (federation.gradient(y, *batch) + mu * (y - x))
            moved.append(y - x)
        x = x + sum(moved) / len(moved)
        models.append(x)
    return models


def scaffold(federation, rounds):
    """Algorithm 1 of the paper, option II. An update that does not arrive changes no variate."""
    x, c, models = federation.start, torch.zeros_like(federation.start), []
    own = [torch.zeros_like(x) for _ in range(federation.count)]
    for round, (sampled, arrived) in enumerate(rounds, start=1):
        dy, dc = {}, {}
        for i in sampled:
            y, steps = x.clone(), 0
            for batch in federation.batches(round, i):
                y = y - federation.lr * (federation.gradient(y, *batch) - own[i] + c)
                steps += 1
            new = own[i] - c + (x - y) / (steps * federation.lr)
            dy[i], dc[i] = y - x, new - own[i]
        if arrived:
            x = x + federation.training.server_lr * sum(dy[i] for i in arrived) / len(arrived)
            c = c + len(arrived) / federation.count * sum(dc[i] for i in arrived) / len(arrived)
        for i in arrived:
            own[i] = own[i] + dc[i]
        models.append(x)
    return models


def fednova(federation, rounds, by_samples=False):
    """Equation 9 of the paper: x - tau_eff sum_i p_i lr d_i, with d_i the gradients weighed by a_i over |a_i|_1."""
    x, models = federation.start, []
    for round, (sampled, _) in enumerate(rounds, start=1):
        d, norm = {}, {}
        for i in sampled:
            y, velocity, gradients = x.clone(), torch.zeros_like(x), []
            for batch in federation.batches(round, i):
                gradients.append(federation.gradient(y, *batch))
                velocity = federation.training.momentum * velocity + gradients[-1]
                y = y - federation.lr * velocity
            steps, rho = len(gradients), federation.training.momentum
            a = [sum(rho**power for power in range(steps - k)) for k in range(steps)]
            norm[i] = sum(a)
            d[i] = sum(weight * gradient for weight, gradient in zip(a, gradients, strict=True)) / norm[i]
        sizes = {i: federation.setup.task.sizes[i] if by_samples else 1 for i in sampled}
        p = {i: sizes[i] / sum(sizes.values()) for i in sampled}
        tau = sum(p[i] * norm[i] for i in sampled)
        x = x - tau * sum(p[i] * federation.lr * d[i] for i in sampled)
        models.append(x)
    return models


def feddyn(federation, rounds, alpha):
    """Algorithm 1 of the paper, the minimisation by the client's SGD."""
    theta, h, models = federation.start, torch.zeros_like(federation.start), []
    last = [torch.zeros_like(theta) for _ in range(federation.count)]  # the gradient of L_k at theta_k
    for round, (sampled, arrived) in enumerate(rounds, start=1):
        local = {}
        for k in sampled:
            w = theta.clone()
            for batch in federation.batches(round, k):
                w = w - federation.lr * (federation.gradient(w, *batch) - last[k] + alpha * (w - theta))
            local[k] = w
        if arrived:
            for k in arrived:
                last[k] = last[k] - alpha * (local[k] - theta)
            h = h - alpha / federation.count * sum(local[k] - theta for k in arrived)
            theta = sum(local[k] for k in arrived) / len(arrived) - h / alpha
        models.append(theta)
    return models


def fedper(federation, rounds, head):
    x, models = federation.start, []
    heads = [x[-head:] for _ in range(federation.count)]
    for round, (sampled, _) in enumerate(rounds, start=1):
        shared = []
        for i in sampled:
            y = torch.cat([x[:-head], heads[i]])
            for batch in federation.batches(round, i):
                y = y - federation.lr * federation.gradient(y, *batch)
            heads[i] = y[-head:]
            shared.append(y[:-head])
        x = torch.cat([sum(shared) / len(shared), x[-head:]])
        models.append(x)
    return models


def ran(setup):
    """The models after each round, and who was chosen and who arrived in each."""
    reports = list(Server().run(setup))
    return [report.model for report in reports], [(report.chosen, arrived(report)) for report in reports]


def arrived(report):
    return tuple(client for client in report.clients if client not in report.of_fate(Fate.SILENT))


def furthest(ours, theirs) -> float:
    return max(float((mine - plain).abs().max()) for mine, plain in zip(ours, theirs, strict=True))


HALF = Participation(total=len(RAGGED), per_round=0.6)
TWINS = {
    "fedprox": (Training(algorithm=FedProx(mu=0.7), local_epochs=3), lambda f, r: fedprox(f, r, 0.7)),
    "fedprox, its own mu": (Training(algorithm=FedProx(), local_steps=4), lambda f, r: fedprox(f, r, 0.1)),
    "scaffold": (Training(algorithm=Scaffold(), local_steps=5, server_lr=0.7), scaffold),
    "fednova": (Training(algorithm=FedNova(), local_epochs=2), fednova),
    "fednova, momentum": (Training(algorithm=FedNova(), local_epochs=2, momentum=0.8), fednova),
    "feddyn": (Training(algorithm=FedDyn(alpha=0.3), local_epochs=2), lambda f, r: feddyn(f, r, 0.3)),
}


@MODELS
@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("per_round", [1.0, 0.6])
def test_equals_a_plain_loop_written_from_its_paper(name, model, per_round, float64):
    training, twin = TWINS[name]
    training = training.model_copy(update={"rounds": 4, "lr": 0.3, "batch_size": 4})
    setup = set_up(deal(model), training, participation=dataclasses.replace(HALF, per_round=per_round))
    ours, rounds = ran(setup)
    theirs = twin(Federation(setup), rounds)
    assert furthest(ours, theirs) < 1e-10
    plain, _ = ran(setup.with_parts(training=training.model_copy(update={"algorithm": FedAvg()})))
    assert furthest(ours, plain) > 1e-3  # it is another algorithm


@pytest.mark.parametrize("work", [{"local_epochs": 3}, {"local_steps": 4}])
@pytest.mark.parametrize("share", [0.01, 0.29, 0.5, 0.9, 1.0])
def test_fednova_counts_the_steps_of_a_client_that_stops_early(work, share):
    """tau is announced before anybody stops; a_i is the number of batches that the client came to."""
    training = Training(algorithm=FedNova(), lr=0.3, batch_size=4, **work)
    task, local = deal(), FedNova().start(set_up(deal(), training))
    model, clients = task.initial_model(Rng(0)), tuple(range(len(RAGGED)))
    plan = dataclasses.replace(training.plan(), shares=dict.fromkeys(clients, share))
    local.begin(clients)
    sent, plain = torch.empty(2, len(clients), task.dim)
    local.train(task, model, clients, plan, Rng(1), sent)
    task.local_updates(model, clients, plan, Rng(1), plain)
    whole = [len(schedule(training.plan(), size, np.random.default_rng(0))) for size in RAGGED]
    for client, size in enumerate(RAGGED):
        steps = len(schedule(plan, size, np.random.default_rng(0), share))
        assert torch.allclose(sent[client], plain[client] * sum(whole) / len(whole) / steps, atol=1e-6)


@pytest.mark.parametrize("per_round", [1.0, 0.6])
def test_fedper_equals_a_plain_loop_in_which_each_client_has_a_last_layer(per_round, float64):
    task, head = deal("mlp(hidden=(5,))"), 5 * CLASSES + CLASSES
    training = Training(algorithm=FedPer(), rounds=5, lr=0.3, batch_size=4)
    setup = set_up(task, training, participation=dataclasses.replace(HALF, per_round=per_round))
    ours, rounds = ran(setup)
    assert furthest(ours, fedper(Federation(setup), rounds, head)) < 1e-10


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_silent_clients_and_empty_rounds_leave_no_trace_in_the_accounts(name, float64):
    training, twin = TWINS[name]
    setup = set_up(
        deal(),
        training.model_copy(update={"rounds": 20, "lr": 0.3, "batch_size": 4}),
        participation=dataclasses.replace(HALF, per_round=2, sampling="poisson"),
        protocol=Protocol(dropout=Dropout(rate=0.4)),
    )
    ours, rounds = ran(setup)
    assert any(set(there) < set(chosen) and there for chosen, there in rounds)
    assert any(not there for _, there in rounds)
    assert furthest(ours, twin(Federation(setup), rounds)) < 1e-10


def test_fednova_weighs_by_examples_where_the_rule_does(float64):
    setup = set_up(
        deal(),
        Training(algorithm=FedNova(), rounds=4, lr=0.3, batch_size=4),
        pipeline="weighted_mean",
        participation=HALF,
    )
    ours, rounds = ran(setup)
    assert furthest(ours, fednova(Federation(setup), rounds, by_samples=True)) < 1e-10


def test_fedprox_without_its_term_is_fedavg():
    training = Training(rounds=3, batch_size=4)
    plain, _ = ran(set_up(deal(), training))
    same, _ = ran(set_up(deal(), training.model_copy(update={"algorithm": FedProx(mu=0.0)})))
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


def test_fednova_with_equally_many_steps_is_fedavg():
    training = Training(rounds=3, batch_size=4, local_steps=3, momentum=0.5)
    plain, _ = ran(set_up(deal(), training, participation=HALF))
    same, _ = ran(set_up(deal(), training.model_copy(update={"algorithm": FedNova()}), participation=HALF))
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))


def test_scaffold_of_one_step_with_all_clients_is_gradient_descent(float64):
    setup = set_up(deal(), Training(algorithm=Scaffold(), rounds=8, lr=0.4, local_steps=1, batch_size=None))
    federation = Federation(setup)
    w, expected = federation.start, []
    for _ in range(8):
        w = w - 0.4 * federation.full_gradient(w)
        expected.append(w)
    assert furthest(ran(setup)[0], expected) < 1e-12


def test_where_clients_disagree_scaffold_and_feddyn_reach_the_optimum_and_fedavg_does_not(float64):
    """A convex problem, many local steps on full batches: FedAvg's fixed point is another (Karimireddy et al., section 3)."""
    common = {"rounds": 60, "lr": 0.5, "local_steps": 30, "batch_size": None}
    task = deal("softmax", sizes=(30, 40, 25, 35))
    left, loss = {}, {}
    for name in ("fedavg", "scaffold", "feddyn"):
        setup = set_up(task, Training(algorithm=load_registry().build("algorithm", name), **common))
        models, _ = ran(setup)
        federation = Federation(setup)
        left[name] = [float(federation.full_gradient(w).norm()) for w in models]
        loss[name] = [
            sum(float(cross_entropy(task.logits(w, part.x), part.y)) for part in task.parts) / len(task.parts)
            for w in models
        ]
    assert left["fedavg"][-1] > 1e-2
    assert left["fedavg"][-1] == pytest.approx(left["fedavg"][-2], rel=1e-3)  # it stays there
    for name in ("scaffold", "feddyn"):
        assert left[name][-1] < 1e-5, name
        assert min(loss[name]) < min(loss["fedavg"]) - 1e-4, name
        assert left[name][29] < left["fedavg"][29] / 10, name


def test_at_the_optimum_feddyn_stands_still(float64):
    """There the g_i are the clients' gradients, which cancel, so h = 0, and no client moves."""
    task = deal("softmax", sizes=(30, 40, 25, 35))
    training = Training(algorithm=FedDyn(), rounds=100, lr=0.5, local_steps=30, batch_size=None)
    models, _ = ran(set_up(task, training))
    assert float((models[-1] - models[-2]).norm()) < 1e-9 < float((models[1] - models[0]).norm())


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_under_masks_the_accounts_are_the_same_up_to_rounding(name):
    training = TWINS[name][0].model_copy(update={"rounds": 4, "lr": 0.3, "batch_size": 4})
    masks = Protocol(secure_aggregation=FullMasking())
    open_models, _ = ran(set_up(deal(), training))
    masked, _ = ran(set_up(deal(), training, protocol=masks))
    assert 0 < furthest(open_models, masked) < 1e-3


class Liar(PoisonAttack):
    """Sends what would wreck any variate, and keeps what its own training gave."""

    name, needs = "liar", (Sight.OWN_DATA,)

    def __init__(self) -> None:
        self.trained: list[torch.Tensor] = []

    def craft(self, view):
        self.trained.append(view.own.clone())
        return torch.full((view.f, view.dim), 1e6, dtype=view.own.dtype)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedper"])
def test_what_a_colluder_sends_does_not_spoil_what_it_trains_with(name, float64):
    """Under the median its lie moves nothing; so it trains on from its honest accounts, and all stays finite and small."""
    attack = Liar()
    training = Training(
        algorithm=load_registry().build("algorithm", name), rounds=8, lr=0.3, batch_size=4, local_steps=5
    )
    setup = set_up(deal(), training, attack=attack, malicious=(2,), pipeline="median")
    models, _ = ran(setup)
    assert len(attack.trained) == 8
    assert max(float(own.abs().max()) for own in attack.trained) < 50
    assert float(models[-1].abs().max()) < 50


def test_nobody_moves_the_last_layer_of_fedper():
    task, head = deal(), 5 * CLASSES + CLASSES
    setup = set_up(task, Training(algorithm=FedPer(), rounds=3), attack=Liar(), malicious=(2,))
    models, _ = ran(setup)
    start = task.initial_model(setup.rng.child("model"))
    assert all(torch.equal(model[-head:], start[-head:]) for model in models)
    assert all(not torch.equal(model[:-head], start[:-head]) for model in models)


def test_personal_accuracy_is_that_on_test_examples_with_the_clients_shares_of_labels(float64):
    """The truth: a test set for each honest client in which each label stands as often as at the client, example by example."""
    task, head = deal(sizes=(6, 12, 3, 9)), 5 * CLASSES + CLASSES
    training = Training(algorithm=FedPer(), rounds=3, lr=0.3, batch_size=4)
    setup = set_up(task, training, attack=Liar(), malicious=(1,), pipeline="median")
    *_, last = Server().run(setup)
    federation, test = Federation(setup), task.dataset.test
    history = [federation.start, *[report.model for report in Server().run(setup)]]
    found = []
    for client in (0, 2, 3):
        own = federation.start[-head:]
        for round in (1, 2, 3):
            y = torch.cat([history[round - 1][:-head], own])
            for batch in federation.batches(round, client):
                y = y - training.lr * federation.gradient(y, *batch)
            own = y[-head:]
        whole = torch.cat([last.model[:-head], own])
        right = (task.logits(whole, test.x).argmax(1) == test.y).tolist()
        labels, score = task.parts[client].y.tolist(), 0.0
        for label in labels:
            of_label = [good for good, y in zip(right, test.y.tolist(), strict=True) if y == label]
            score += sum(of_label) / len(of_label) / len(labels)
        found.append(score)
    assert last.evaluation.accuracy == pytest.approx(sum(found) / 3, abs=1e-12)


def test_a_model_of_one_layer_cannot_be_personal():
    with pytest.raises(ConfigError, match="expected a model with layers below the last"):
        next(Server().run(set_up(deal("softmax"), Training(algorithm=FedPer(), rounds=1))))


def test_what_a_rule_adds_to_the_mean_stays_in_the_servers_variate(float64):
    """Where all take part: after t rounds c differs from the mean of the c_i by -t b / (K lr), as the document says."""
    task, added = deal(), torch.full((5 * FEATURES + 5 + 5 * CLASSES + CLASSES,), 0.01)
    local = Scaffold().start(set_up(task, Training(algorithm=Scaffold(), local_steps=4, lr=0.2)))
    model, everybody = task.initial_model(Rng(0)), range(len(RAGGED))
    for round in range(1, 6):
        rows = torch.empty(len(RAGGED), task.dim)
        local.begin(everybody)
        local.train(task, model, everybody, local.setup.cell.training.plan(), Rng(1).child(round), rows)
        local.note(everybody, rows)
        model = model + local.settle(rows.mean(0) + added, everybody, model)
        own = sum(local._own.values()) / len(RAGGED)
        assert (local._server - own + round * added / (4 * 0.2)).abs().max() < 1e-12


def personal(network: nn.Module, shape=(FEATURES,)) -> int:
    return last_layer(network, shape)


class HeadFirst(nn.Module):
    """The last layer is run last and made first."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(4, CLASSES), nn.Linear(FEATURES, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Tied(nn.Module):
    """The last layer takes its weight from the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(x).relu())


def test_the_layer_that_stays_at_the_client_is_the_end_of_the_update():
    """Where it is not, a slice of other layers would stay there."""
    assert personal(nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, CLASSES, bias=False))) == 4 * CLASSES
    for network in (HeadFirst(), Tied()):
        with pytest.raises(ConfigError, match="fedper: expected a network whose last layer is made last"):
            personal(network)


OPTIMIZERS = {
    "adam": (Adam(), lambda v, u: 0.99 * v + 0.01 * u * u),
    "yogi": (Yogi(), lambda v, u: v - 0.01 * u * u * ((v > u * u) - (v < u * u))),
    "adagrad": (Adagrad(), lambda v, u: v + u * u),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_server_optimizer_moves_as_its_paper_says_coordinate_by_coordinate(name, float64):
    optimizer, second = OPTIMIZERS[name]
    training = Training(rounds=6, lr=0.3, batch_size=4, server_optimizer=optimizer, server_lr=0.05)
    setup = set_up(deal(), training)
    ours, _ = ran(setup)
    federation, beta1 = Federation(setup), {"adam": 0.9, "yogi": 0.9, "adagrad": 0.0}[name]
    x = federation.start.tolist()
    m, v = [0.0] * len(x), [1e-6] * len(x)
    for round in range(1, 7):
        moved = []
        for client in range(federation.count):
            y = torch.tensor(x)
            for batch in federation.batches(round, client):
                y = y - federation.lr * federation.gradient(y, *batch)
            moved.append((y - torch.tensor(x)).tolist())
        for k in range(len(x)):
            u = sum(row[k] for row in moved) / len(moved)
            m[k] = beta1 * m[k] + (1 - beta1) * u
            v[k] = second(v[k], u)
            x[k] += 0.05 * m[k] / (math.sqrt(v[k]) + 1e-3)
        assert max(abs(a - b) for a, b in zip(ours[round - 1].tolist(), x, strict=True)) < 1e-10


def test_the_first_step_of_each_server_optimizer_in_closed_form():
    u, tau = torch.tensor([0.5, -0.02, 0.0], dtype=torch.float64), 0.1
    for optimizer, v in (
        (Adam(tau=tau), 0.99 * tau**2 + 0.01 * u**2),
        (Yogi(tau=tau), torch.tensor([tau**2 + 0.01 * 0.25, tau**2 - 0.01 * 0.0004, tau**2], dtype=torch.float64)),
        (Adagrad(tau=tau, beta1=0.9), tau**2 + u**2),
    ):
        step, _ = optimizer.move(u, optimizer.start(u))
        assert torch.allclose(step, 0.1 * u / (v.sqrt() + tau), rtol=0, atol=1e-15)


def test_clients_join_and_leave_in_the_rounds_that_the_schedule_names():
    clients = Participation(total=10, schedule=(Stay(clients=2, joins=3), Stay(clients=3, leaves=5)))
    everybody = tuple(range(10))
    assert [clients.choose(Rng(0), round) for round in (1, 2)] == [everybody[2:]] * 2
    assert [clients.choose(Rng(0), round) for round in (3, 4)] == [everybody] * 2
    assert [clients.choose(Rng(0), round) for round in (5, 9)] == [(0, 1, *range(5, 10))] * 2


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_only_those_who_are_there_are_drawn_and_each_alike(sampling):
    clients = Participation(total=20, per_round=5, sampling=sampling, schedule=(Stay(clients=8, joins=100),))
    draws = [clients.choose(Rng(1).child(number), 1) for number in range(3000)]
    counts = torch.bincount(torch.tensor([client for chosen in draws for client in chosen]), minlength=20)
    assert counts[:8].sum() == 0
    share = 5 / 12 if sampling == "fixed" else 5 / 20
    deviation = math.sqrt(3000 * share * (1 - share))
    assert (counts[8:] - 3000 * share).abs().max() < 5 * deviation
    few = dataclasses.replace(clients, schedule=(Stay(clients=17, joins=2), Stay(clients=1, leaves=1)))
    if sampling == "fixed":
        assert few.choose(Rng(0), 1) == (18, 19)  # fewer than are to be drawn: all of them
        assert len(few.choose(Rng(0), 2)) == 5


def test_a_schedule_shifts_nobody_elses_draw_under_poisson_sampling():
    clients = Participation(total=20, per_round=5, sampling="poisson")
    later = dataclasses.replace(clients, schedule=(Stay(clients=8, joins=2),))
    for number in range(50):
        everybody = clients.choose(Rng(2).child(number), 1)
        assert later.choose(Rng(2).child(number), 1) == tuple(client for client in everybody if client >= 8)


def test_a_client_that_joins_late_trains_from_then_on(float64):
    training, twin = TWINS["scaffold"]
    training = training.model_copy(update={"rounds": 6, "lr": 0.3, "batch_size": 4})
    stays = (Stay(clients=1, joins=4), Stay(clients=2, leaves=3))
    setup = set_up(deal(), training, participation=Participation(total=len(RAGGED), schedule=stays))
    ours, rounds = ran(setup)
    assert [chosen for chosen, _ in rounds] == [(1, 2, 3, 4)] * 2 + [(3, 4)] + [(0, 3, 4)] * 3
    assert furthest(ours, twin(Federation(setup), rounds)) < 1e-10


SUITE = """\
clients: {total: 10, malicious: 2}
training: {rounds: 3}
server: {root_data: 20}
"""


def laid_out(*settings):
    data, lines = parse_yaml(SUITE, "small.yaml")
    document = override(Document(data, "small.yaml", None, lines), settings)
    return plan(document, read_suite(document))


def cell(*settings) -> PlannedCell:
    return laid_out(*settings).positions[0][1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.mu=0.1"], "training: mu is a parameter of fedprox; got algorithm: fedavg."),
        (["training={algorithm: fedprox, alpha: 1}"], "training: alpha is a parameter of feddyn; got algorithm: fedprox."),
        (["training={algorithm: fedprox, mu: -1}"], "training: fedprox: mu: expected at least 0; got -1.0."),
        (["training={algorithm: scaffold}"], "scaffold lets all clients take the same number of steps; got epochs."),
        (["training={algorithm: scaffold, local_steps: 3, momentum: 0.5}"], "which it is not with momentum"),
        (["training={algorithm: feddyn, worker_momentum: 0.5}"], "feddyn keeps account of single updates"),
        (["training={algorithm: feddyn, server_lr: 0.5}"], "feddyn has a server step of its own"),
        (["training={algorithm: fedsgd, local_steps: 3}"], "fedsgd takes one step per round"),
        (["training={local_steps: 3, local_epochs: 2}"], "local_steps replaces local_epochs"),
        (["training={server_optimizer: {name: adam}, server_momentum: 0.5}"], "server_optimizer replaces server_momentum"),
        (["training={server_optimizer: {name: adamm}}"], "expected {name: adam}, {name: yogi} or {name: adagrad}"),
        (["training={server_optimizer: {name: adagrad, beta2: 0.5}}"], "unknown key 'beta2'. Did you mean 'beta1' or 'tau'?"),
        (["training={server_optimizer: {name: adam, tau: 0}}"], "tau: expected greater than 0; got 0."),
        (["training={algorithm: fedporx}"], "unknown algorithm 'fedporx'. Did you mean 'fedprox'"),
        (["clients.schedule=[{clients: 6}, {clients: 0.5}]"], "schedule: expected at most clients.total = 10 clients; got 11."),
        (["clients.schedule=[{clients: 6, joins: 3, leaves: 3}]"], "leaves: expected a round after joins = 3; got 3."),
        (["clients.schedule=[{clients: 6, joins: 4}]"], "expected joins of at most training.rounds = 3; got 4."),
        (["clients={per_round: 0.5, sampling: cyclic, schedule: [{clients: 1}]}"], "clients that take turns are there all the time"),
        (["clients.schedule=[{clients: 1, join: 2}]"], "unknown key 'join'. Did you mean 'joins'?"),
    ],
)  # fmt: skip
def test_settings_that_an_algorithm_does_not_have(settings, message):
    with pytest.raises(FedGuardError) as caught:
        laid_out(*settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


NOISE = "{kind: %s, clip: 1.0, noise_multiplier: 1.0, delta: 1e-5%s}"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["training.algorithm=fedprox", "protocol.privacy=" + NOISE % ("record", ", sample_rate: 0.1")], "DP-SGD takes the steps of"),
        (["training.algorithm=fednova", "protocol.privacy=" + NOISE % ("client", "")], "and fednova works with more"),
        (["training.server_optimizer={name: yogi}", "protocol.privacy=" + NOISE % ("client", "")], "moves another way"),
        (["training.algorithm=feddyn", "protocol={norm_bound: 1.0, secure_aggregation: full}"], "norm_bound shortens it afterwards"),
        (["training.algorithm=feddyn", "defense=fltrust"], "the server trains on its root data as fedavg does"),
        (["training.algorithm=fedprox", "attack=inverting_gradients", "clients.malicious=0"], "and fedprox takes others"),
        (["training={algorithm: scaffold, local_steps: 3}", "defense=crfl"], "what else crfl puts into it adds"),
        (["training.algorithm=feddyn", "defense=nnm >> sign_sgd"], "what else sign_sgd puts into it adds"),
        (["training.algorithm=fedper", "attack=model_replacement"], "there is one for each client"),
        (["training.algorithm=fedper", "defense=deepsight"], "deepsight works with the whole model"),
        (["clients.schedule=[{clients: 1, joins: 2}]", "protocol.secure_aggregation=full"], "are planned for all of them"),
        (["clients.schedule=[{clients: 1, joins: 2}]", "protocol.privacy=" + NOISE % ("client", "")], "are planned for all of them"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_with_a_reason(settings, reason):
    assert reason in " ".join(cell("task.model=mlp", *settings).verdict.reasons)


@pytest.mark.parametrize("algorithm", ["fedprox", "scaffold", "fednova", "feddyn", "fedper"])
@pytest.mark.parametrize("defense", ["mean", "median", "nnm >> trimmed_mean"])
def test_each_algorithm_goes_with_rules_and_attacks_on_the_training(algorithm, defense):
    one = cell(
        "task.model=mlp",
        f"training.algorithm={algorithm}",
        "training.local_steps=5",
        f"defense={defense}",
        "attack=alie",
    )
    assert one.verdict.reasons == ()


def test_a_cell_that_uses_none_of_this_has_the_identity_that_it_had():
    one = cell()
    assert set(one.canonical["clients"]) == {"total", "per_round", "sampling", "malicious", "assumed_f"}
    assert set(one.canonical["training"]) == {
        "algorithm", "rounds", "local_epochs", "batch_size", "lr", "momentum", "worker_momentum", "server_lr", "server_momentum",
    }  # fmt: skip


def test_the_identity_holds_every_parameter_and_the_cell_can_be_built_from_it():
    said = cell(
        "training={algorithm: feddyn, alpha: 0.1, local_steps: 5}", "clients.schedule=[{clients: 0.2, joins: 2}]"
    )
    unsaid = cell("training={algorithm: feddyn, local_steps: 5}", "clients.schedule=[{clients: 2, joins: 2}]")
    assert said.id == unsaid.id
    adam = cell("training.server_optimizer={name: adam}")
    assert adam.canonical["training"]["server_optimizer"] == {"name": "adam", "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}
    for one in (said, adam):
        assert build_cell(CellConfig.model_validate(one.canonical), load_registry()).id == one.id
    resolved = yaml.safe_dump(
        laid_out("training.server_optimizer={name: yogi}").suite.model_dump(mode="json", by_alias=True)
    )
    data, lines = parse_yaml(resolved, "resolved.yaml")
    document = Document(data, "resolved.yaml", None, lines)
    assert plan(document, read_suite(document)).positions[0][1].id == cell("training.server_optimizer={name: yogi}").id
    others = [
        cell(f"training={{algorithm: {name}, local_steps: 5}}").id
        for name in ("fedavg", "fedprox", "scaffold", "feddyn")
    ]
    assert len({*others, said.id, adam.id, cell().id}) == 7


@pytest.mark.parametrize("algorithm", ["fedprox", "scaffold", "fednova", "feddyn", "fedper"])
def test_a_whole_trial_learns_under_each_algorithm(algorithm):
    """With a malicious client, clients that come and go, silent ones, and root data for the trial's references."""
    one = cell(
        f"training={{algorithm: {algorithm}, rounds: 6, local_steps: 20, lr: 0.3}}",
        "task={model: {name: mlp, hidden: [16]}, partition: {name: dirichlet, alpha: 0.3}}",
        "clients={total: 10, malicious: 1, schedule: [{clients: 2, joins: 3}, {clients: 1, leaves: 4}]}",
        "protocol.dropout.rate=0.1",
        "attack=sign_flip",
        "defense=trimmed_mean",
    )
    assert one.verdict.reasons == ()
    record, _ = run_trial(one, 0, {})
    assert record["result"]["final_accuracy"] > 0.4
    assert record["result"]["references"]["root_only"] > 0.15
    assert record["threat_card"]["algorithm"] == algorithm


def test_what_the_document_shows_is_legal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("first.npz", **{"1.weight": np.zeros((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)})
    text = (ROOT / "docs" / "algorithms.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(shown) == 4
    for block in shown:
        data, lines = parse_yaml(block, "algorithms.md")
        document = Document(data, "algorithms.md", None, lines)
        assert plan(document, read_suite(document)).positions[0][1].verdict.reasons == ()
