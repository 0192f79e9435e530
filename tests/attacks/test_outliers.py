"""Faults without malice, clients that stay silent, and the honest minority that must not be thrown out with them."""

from __future__ import annotations

import json
import math
from itertools import islice

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.api import lay_out
from fedguard.architectures.clients import Clients
from fedguard.architectures.server import Server
from fedguard.bench.running.card import acts_on
from fedguard.bench.running.check import explain_refusals
from fedguard.contracts import Examples, Fate, Participation, PoisonAttack, RoundReport, Sight, Training
from fedguard.errors import ConfigError, ContractError
from fedguard.metrics.minority import minorities
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.architectures.test_training import deal, set_up
from tests.attacks.test_attacks import build, data_view, view
from tests.root import ROOT
from tests.table import normal

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
ON_DATA = ["label_noise", "dead_pixels", "stuck_sensor", "gain_drift", "wrong_normalization"]
FEDSGD = Training(algorithm="fedsgd", rounds=4, lr=0.5, batch_size=16)


def images(count=50, shape=(1, 8, 8), seed=0) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    return Examples(torch.rand(count, *shape, generator=draw), torch.randint(10, (count,), generator=draw))


def of_client(client: int, **facts):
    """The view of one client, with the stream of its own that the core would give it."""
    return data_view(rng=Rng(0).child("attack", "data", client), **facts)


# Faults in the data.


@pytest.mark.parametrize("name", [*ON_DATA, "unit_error", "duplicated_client", "dropout"])
def test_faults_say_that_they_are_faults(name):
    assert build(name).goal == "fault"
    assert build(name).source


@pytest.mark.parametrize("name", ON_DATA)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 4), (13,)])
def test_faults_in_the_data_leave_the_examples_as_they_were_and_are_the_clients_own(name, shape):
    """The same client gets the same fault each time; where the fault is drawn, another client gets another one."""
    examples = images(shape=shape)
    x, y = examples.x.clone(), examples.y.clone()

    def faulty(client):
        return build(name).poison(examples, of_client(client, shape=shape, round=7))

    one, again, other = faulty(3), faulty(3), faulty(4)
    assert torch.equal(examples.x, x)
    assert torch.equal(examples.y, y)
    assert (one.x.shape, one.x.dtype, one.y.dtype) == (x.shape, x.dtype, y.dtype)
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.y, again.y)
    assert not (torch.equal(one.x, x) and torch.equal(one.y, y))
    drawn = name in ("label_noise", "dead_pixels", "stuck_sensor")
    assert drawn != (torch.equal(one.x, other.x) and torch.equal(one.y, other.y))


@pytest.mark.parametrize("noise", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_label_noise_has_the_law_it_states(noise, share):
    """Wrong labels are binomial (n, share); symmetric ones are uniform over the C - 1 others, asymmetric ones are the next."""
    n, classes = 40_000, 10
    examples = Examples(torch.zeros(n, 1), torch.arange(n) % classes)
    poisoned = build("label_noise", share=share, noise=noise).poison(examples, of_client(0))
    off = (poisoned.y - examples.y) % classes
    wrong = off != 0
    assert abs(int(wrong.sum()) - n * share) < 5 * math.sqrt(n * share * (1 - share))
    for label in range(classes):  # whatever the true label
        here = int(wrong[examples.y == label].sum())
        assert abs(here - n / classes * share) < 5 * math.sqrt(n / classes * share * (1 - share))
    if noise == "asymmetric":
        assert set(off[wrong].tolist()) == {1}
        assert poisoned.y[wrong & (examples.y == 9)].unique().tolist() == [0]
    else:
        expected = int(wrong.sum()) / (classes - 1)
        counts = torch.bincount(off[wrong], minlength=classes)[1:]
        assert float(((counts - expected) ** 2 / expected).sum()) < 35.0  # chi-square, 8 degrees: beyond 1 in 20,000


def test_the_number_of_wrong_labels_varies_as_a_binomial_does():
    n, share = 60, 0.3
    examples = Examples(torch.zeros(n, 1), torch.zeros(n, dtype=torch.int64))
    attack = build("label_noise", share=share)
    counts = torch.tensor([int((attack.poison(examples, of_client(i)).y != 0).sum()) for i in range(2000)]).double()
    assert float(counts.mean()) == pytest.approx(n * share, abs=5 * math.sqrt(n * share * (1 - share) / 2000))
    assert float(counts.var()) == pytest.approx(n * share * (1 - share), rel=0.15)  # a fixed number would have 0


def test_all_labels_are_wrong_at_share_one():
    examples = images(500)
    for noise in ("symmetric", "asymmetric"):
        assert (build("label_noise", share=1.0, noise=noise).poison(examples, of_client(0)).y != examples.y).all()


@pytest.mark.parametrize(("shape", "positions"), [((1, 8, 8), 64), ((3, 4, 4), 16), ((13,), 13), ((20, 5), 100)])
@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_dead_pixels_are_the_same_in_all_inputs_and_nothing_else_changes(shape, positions, share):
    examples = images(30, shape)
    range_ = (-0.5, 1.0)
    attack = build("dead_pixels", share=share)
    poisoned = attack.poison(examples, of_client(0, shape=shape, value_range=range_)).x
    dead = (poisoned == range_[0]).all(0)
    assert torch.equal(poisoned, torch.where(dead, torch.tensor(range_[0]), examples.x))
    channels = shape[0] if len(shape) == 3 else 1
    assert int(dead.sum()) == channels * max(1, round(share * positions))
    if len(shape) == 3:
        assert all(torch.equal(dead[0], channel) for channel in dead)


def test_every_position_may_die():
    """Each of 64 pixels is dead for a fifth of the clients."""
    examples, attack = images(1), build("dead_pixels", share=0.2)
    dead = torch.stack([(attack.poison(examples, of_client(i)).x == 0)[0].flatten() for i in range(1000)])
    p = 13 / 64
    assert ((dead.double().mean(0) - p).abs() < 5 * math.sqrt(p * (1 - p) / 1000)).all()


def test_a_stuck_sensor_repeats_one_of_its_own_readings():
    examples = images(40)
    poisoned = build("stuck_sensor").poison(examples, of_client(0))
    assert len(poisoned.x.unique(dim=0)) == 1
    assert any(torch.equal(poisoned.x[0], own) for own in examples.x)
    assert torch.equal(poisoned.y, examples.y)
    frames = {tuple(build("stuck_sensor").poison(examples, of_client(i)).x[0].flatten().tolist()) for i in range(40)}
    assert len(frames) > 15  # not always the first or the last


def test_a_sensor_that_froze_later_has_good_readings_too():
    examples = images(40)
    poisoned = build("stuck_sensor", share=0.25).poison(examples, of_client(0)).x
    changed = (poisoned != examples.x).flatten(1).any(1)
    assert int(changed.sum()) == 9  # ten frozen, of which one is the reading itself
    assert len(poisoned[changed].unique(dim=0)) == 1


@pytest.mark.parametrize("drift", [0.05, -0.3, 2.0])
def test_gain_drift_is_its_formula_and_saturates(drift):
    examples = Examples(torch.arange(-20, 21)[:, None] / 20, torch.zeros(41, dtype=torch.int64))  # 0 among them
    for round in (1, 2, 3, 10, 100, 100_000):
        poisoned = build("gain_drift", drift=drift).poison(examples, of_client(0, round=round, value_range=(-0.5, 1.0)))
        for before, after in zip(examples.x[:, 0].tolist(), poisoned.x[:, 0].tolist(), strict=True):
            gain = 1.0
            for _ in range(min(round - 1, 2000)):
                gain = min(gain * (1 + drift), 1e25)
            assert after == pytest.approx(max(-0.5, min(1.0, before * gain)), rel=1e-5, abs=1e-12)


def test_gain_drift_starts_calibrated():
    examples = images(5)
    assert torch.equal(build("gain_drift").poison(examples, of_client(0, round=1)).x, examples.x)


def test_wrong_normalization_is_its_formula():
    examples = images(20)
    poisoned = build("wrong_normalization", scale=255.0, shift=-3.0).poison(examples, of_client(0))
    for before, after in zip(examples.x.flatten().tolist(), poisoned.x.flatten().tolist(), strict=True):
        assert after == pytest.approx(255 * before - 3, abs=1e-4)
    usual = build("wrong_normalization").poison(
        Examples(torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([0])), of_client(0)
    )
    assert usual.x.tolist() == [[-1, 0, 1]]


# Faults of the update.


def test_unit_error_hits_every_faulty_client():
    own = normal(4, 5)
    sent = build("unit_error").craft(view(normal(6, 5), f=4, own=own))
    for row, clean in zip(sent.tolist(), own.tolist(), strict=True):
        assert row == pytest.approx([100 * value for value in clean], rel=1e-6)


def test_a_duplicated_client_sends_what_the_next_honest_one_sends():
    honest = normal(4, 6)
    seen = view(honest, f=3, clients=(1, 4, 5, 8))  # the faulty ones are 4, 5 and 6 there; here 2, 6 and 9
    for faulty, doubled in (((2, 6, 9), (4, 8, 1)), ((0, 3, 7), (1, 4, 8))):
        sent = build("duplicated_client").craft(seen.restrict("test", Sight.HONEST_UPDATES, malicious=faulty))
        for row, client in zip(sent, doubled, strict=True):
            assert torch.equal(row, honest[(1, 4, 5, 8).index(client)])
    nobody = view(honest[:0], f=2, clients=None).restrict("test", Sight.HONEST_UPDATES, honest_clients=())
    assert torch.equal(build("duplicated_client").craft(nobody), torch.zeros(2, 6))


@pytest.mark.parametrize("delay", [10, 50])
def test_stale_sends_what_was_computed_that_many_rounds_ago(delay):
    """Through the clients' own side of the round: what they send in round t is what they computed in round t - delay."""
    task, rounds, malicious = deal("softmax"), delay + 8, (1, 4)
    training = Training(algorithm="fedsgd", rounds=rounds, lr=0.5, batch_size=16, worker_momentum=0.9)
    clean = Clients(set_up(task, training))
    late = Clients(set_up(task, training, attack=f"stale(delay={delay})", malicious=malicious, told=2))
    models = [task.initial_model(Rng(round)) for round in range(rounds)]
    computed: list[dict[int, torch.Tensor]] = []
    for round, model in enumerate(models, start=1):
        buffer = torch.empty(6, task.dim)
        wire = clean.send(model, round, range(6), lambda honest, malicious: None, buffer)
        computed.append({client: row.clone() for client, row in zip(wire.senders, wire.updates, strict=True)})
        sent = late.send(model, round, range(6), lambda honest, malicious: None, torch.empty(6, task.dim))
        for client, row in zip(sent.senders, sent.updates, strict=True):
            due = max(0, round - 1 - delay) if client in malicious else round - 1
            assert torch.allclose(row, computed[due][client], atol=1e-6), (round, client)
    assert (computed[0][1] - computed[7][1]).abs().max() > 1e-3  # the rounds differ, so the test can fail


# Clients that stay silent.


def test_a_client_that_drops_out_is_absent_from_the_round():
    """It is as if the others were alone: the same model as in a federation in which they alone were chosen."""
    task, others = deal("softmax", clients=9), (0, 2, 3, 5, 6, 7)
    setup = set_up(task, FEDSGD, attack="dropout", malicious=(1, 4, 8), told=3, pipeline="trimmed_mean")
    reports = list(Server().run(setup))
    for report in reports:
        assert set(report.clients) == set(others)
        assert (len(report.clients), report.malicious, report.not_finite, report.abandoned) == (
            6,
            frozenset(),
            (),
            None,
        )
        assert report.assumed_f == 2  # the assumed share, 3 of 9, of the 6 that sent

    class Others(Participation):
        def choose(self, rng, round):
            return others

    alone = set_up(task, FEDSGD, participation=Others(total=9), told=3, pipeline="trimmed_mean")
    for report, other in zip(reports, Server().run(alone), strict=True):
        assert torch.allclose(report.model, other.model, atol=1e-7)


def test_dropout_comes_and_goes_at_its_rate_and_sends_the_honest_update_when_it_comes():
    task = deal("softmax", clients=10)
    training = Training(algorithm="fedsgd", rounds=80, lr=0.01, batch_size=1)
    setup = set_up(task, training, attack="dropout(rate=0.3)", malicious=range(5), told=5)
    reports = list(Server().run(setup))
    there = np.array([[client in report.clients for client in range(10)] for report in reports])
    assert there[:, 5:].all()
    away = 1 - there[:, :5].mean()
    assert away == pytest.approx(0.3, abs=5 * math.sqrt(0.3 * 0.7 / 400))
    assert all(report.malicious == {client for client in report.clients if client < 5} for report in reports)
    assert all(report.assumed_f == math.ceil(5 * len(report.clients) / 10) for report in reports)
    together = (there[:, 0] & there[:, 1]).mean()  # each on its own
    assert together == pytest.approx(0.49, abs=5 * math.sqrt(0.49 * 0.51 / 80))
    assert (there[:, 0] != there[0, 0]).any()  # drawn afresh in each round
    again = [report.clients for report in islice(Server().run(setup), 20)]
    assert again == [report.clients for report in reports[:20]]


def test_one_that_comes_sends_its_honest_update():
    task = deal("softmax")
    clean, faulty = (
        Clients(set_up(task, FEDSGD, attack=attack, malicious=(0, 1, 2, 3), told=2))
        for attack in (None, "dropout(rate=0.5)")
    )
    model, seen = task.initial_model(Rng(0)), set()
    for round in range(1, 9):
        wire = clean.send(model, round, range(6), lambda honest, malicious: None, torch.empty(6, task.dim))
        honest = dict(zip(wire.senders, wire.updates, strict=True))
        wire = faulty.send(model, round, range(6), lambda honest, malicious: None, torch.empty(6, task.dim))
        assert len(wire.updates) == len(wire.senders)
        assert wire.malicious == set(wire.senders) - {4, 5}
        for client, row in zip(wire.senders, wire.updates, strict=True):
            assert torch.allclose(row, honest[client], atol=1e-6)
        seen.add(len(wire.senders))
    assert len(seen) > 1


def test_if_nobody_answers_the_round_changes_nothing():
    task = deal("softmax")
    setup = set_up(task, FEDSGD, attack="dropout", malicious=range(6), told=2)
    start = task.initial_model(setup.rng.child("model"))
    for report in Server().run(setup):
        assert (report.clients, report.abandoned) == ((), "no update reached the server")
        assert torch.equal(report.model, start)


def test_silence_proves_nothing_while_nan_does():
    """The silent may have been honest, so the share of malicious clients among those who sent is taken for the same."""
    task = deal("softmax")
    for attack, told in (("dropout", 2), ("nan", 0)):
        setup = set_up(task, FEDSGD, attack=attack, malicious=(1, 4), told=2, pipeline="mean")
        assert {report.assumed_f for report in Server().run(setup)} == {told}
    setup = set_up(task, FEDSGD, attack="dropout", malicious=(1, 4), told=2, pipeline="trimmed_mean")
    for report in Server().run(setup):  # no rule is told less than may be true: rather the round is given up, openly
        assert report.abandoned is not None
        assert "trimmed_mean needs n >= 2f + 1, with f = 2: 5 updates; got n = 4" in report.abandoned


def test_what_the_silent_are_shown_cannot_be_changed_and_the_others_stand_in_the_view_alone():
    seen = []

    class Half(PoisonAttack):
        name, needs = "half", (Sight.OWN_DATA | Sight.MODEL,)

        def silent(self, view):
            seen.append((view.round, view.position, view.malicious, view.model.shape))
            return view.position == 0

        def craft(self, view):
            assert view.malicious == (2, 4)
            assert (view.f, view.n) == (2, 5)
            return view.own

    setup = set_up(deal("softmax"), Training(rounds=1), attack=Half(), malicious=(1, 2, 4), told=1)
    (report,) = Server().run(setup)
    assert seen == [(1, position, (1, 2, 4), (650,)) for position in range(3)]
    assert report.malicious == {2, 4}

    class Tamper(Half):
        def silent(self, view):
            view.model.zero_()
            return True

    setup = setup.with_parts(attack=Tamper())
    with pytest.raises(ContractError, match="it changed what it was shown, in place"):
        list(Server().run(setup))


def test_the_card_says_that_dropout_acts_on_participation():
    assert acts_on(build("dropout")) == ["participation"]
    assert acts_on(build("label_noise")) == ["data"]


# End to end.


@pytest.mark.parametrize("name", [*ON_DATA, "unit_error"])
def test_the_server_gets_what_the_fault_makes_of_the_honest_update(name):
    """Round by round the faulty client's update is its honest one on the faulty data, and the honest ones are untouched."""
    task = deal("softmax")
    attack = build(name)
    setup = set_up(task, Training(rounds=3, lr=0.1), attack=attack, malicious=(2,), told=1)
    clients, plan = Clients(setup), setup.cell.plan
    model = task.initial_model(Rng(0))
    for round in (1, 2, 3):
        wire = clients.send(model, round, range(6), lambda honest, malicious: None, torch.empty(6, task.dim))
        rng = setup.rng.child("round", round)
        clean, wrong = torch.empty(6, task.dim), torch.empty(1, task.dim)
        task.local_updates(model, range(6), plan, rng, clean)
        facts = {"rng": setup.rng.child("attack", "data", 2).apart(), "round": round}
        faulty = attack.poison(task.examples(2), data_view(**facts))
        task.with_examples({2: faulty}).local_updates(model, [2], plan, rng, wrong)
        expected = {**dict(enumerate(clean)), 2: wrong[0] * (100 if name == "unit_error" else 1)}
        for client, row in zip(wire.senders, wire.updates, strict=True):
            assert torch.allclose(row, expected[client], atol=2e-5), (round, client)
        same = name == "gain_drift" and round == 1
        assert torch.allclose(expected[2], clean[2], atol=1e-4) == same


def test_duplicated_clients_reach_the_server_as_exact_copies():
    task = deal("softmax")
    setup = set_up(task, Training(rounds=1), attack="duplicated_client", malicious=(2, 5), told=2)
    model = task.initial_model(Rng(0))
    wire = Clients(setup).send(model, 1, range(6), lambda honest, malicious: None, torch.empty(6, task.dim))
    rows = dict(zip(wire.senders, wire.updates, strict=True))
    assert torch.equal(rows[2], rows[3])
    assert torch.equal(rows[5], rows[0])
    assert not torch.equal(rows[3], rows[0])


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("unit_error(factor=0)", "unit_error: factor: expected more than 0; got 0"),
        ("label_noise(share=0)", "label_noise: share: expected a number in .0, 1."),
        ("label_noise(share=1.2)", "share: expected a number in .0, 1."),
        ("label_noise(noise='odd')", "label_noise: noise: .*'symmetric' or 'asymmetric'"),
        ("dead_pixels(share=-0.1)", "dead_pixels: share: expected a number in .0, 1."),
        ("stuck_sensor(share=2)", "stuck_sensor: share: expected a number in .0, 1."),
        ("gain_drift(drift=-1)", "gain_drift: drift: expected more than -1"),
        ("wrong_normalization(scale=0)", "wrong_normalization: scale: expected any number but 0; got 0"),
        ("dropout(rate=0)", "dropout: rate: expected a number in .0, 1."),
    ],
)
def test_wrong_parameters_are_refused(attack, message):
    with pytest.raises(ConfigError, match=message):
        load_registry().build("attack", attack)


# The honest minority.

LABELS = np.repeat(np.arange(10), 143)


def shares(spec, clients=20, seed=0, labels=LABELS):
    examples = Examples(torch.zeros(len(labels), 1), torch.from_numpy(labels))
    return load_registry().build("partition", spec).split(examples, clients, Rng(seed))


@pytest.mark.parametrize("holders", [1, 3])
@pytest.mark.parametrize("label", [0, 7])
def test_a_rare_class_is_held_by_its_holders_alone(label, holders):
    spec = f"rare_class(label={label}, holders={holders})"
    dealt = shares(spec)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(LABELS)))
    rare = [int((LABELS[part] == label).sum()) for part in dealt]
    assert sorted(rare)[-holders:] == sorted(len(piece) for piece in np.array_split(np.arange(143), holders))
    assert sum(count > 0 for count in rare) == holders
    others = [len(part) - count for part, count in zip(dealt, rare, strict=True)]
    assert max(others) - min(others) <= 1
    assert [part.tolist() for part in shares(spec)] == [part.tolist() for part in dealt]
    assert [part.tolist() for part in shares(spec, seed=1)] != [part.tolist() for part in dealt]


def test_the_holder_is_anybody_and_more_holders_include_fewer():
    def holders(count, seed):
        dealt = shares(f"rare_class(holders={count})", 5, seed)
        return {client for client, part in enumerate(dealt) if (LABELS[part] == 0).any()}

    assert {next(iter(holders(1, seed))) for seed in range(40)} == set(range(5))
    assert all(holders(1, seed) < holders(3, seed) for seed in range(10))


def test_the_other_classes_are_dealt_iid():
    """The number of a class's examples in one client's part is hypergeometric: 143 of 1287, of which it gets 64 or 65."""
    counts = np.array([(LABELS[shares("rare_class", 20, seed)[0]] == 5).sum() for seed in range(600)])
    drawn, population, marked = 1287 / 20, 1287, 143
    mean = drawn * marked / population
    variance = mean * (1 - marked / population) * (population - drawn) / (population - 1)
    assert counts.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / 600))
    assert counts.var() == pytest.approx(variance, rel=0.25)


@pytest.mark.parametrize(
    ("spec", "clients", "message"),
    [
        ("rare_class(label=-1)", 20, "rare_class: label: expected at least 0"),
        ("rare_class(holders=0)", 20, "rare_class: holders: expected at least 1"),
        ("rare_class(holders=6)", 5, "rare_class: holders: expected at most clients.total = 5; got 6"),
        ("rare_class(label=10)", 20, "expected an example of class 10 for each of 1 holders; got 0"),
        ("rare_class", 1500, "expected at least one example of another class per client; got 1287 for 1500 clients"),
    ],
)
def test_a_rare_class_that_cannot_be_dealt_says_so(spec, clients, message):
    with pytest.raises(ConfigError, match=message):
        shares(spec, clients)


def report(clients, excluded, not_finite=()) -> RoundReport:
    facts = dict.fromkeys(("abandoned", "evaluation", "aggregate", "backdoor", "planted"))
    return RoundReport(
        round=1,
        model=torch.zeros(1),
        clients=clients,
        malicious=frozenset(),
        assumed_f=0,
        fates=tuple((client, Fate.NOT_FINITE) for client in not_finite),
        excluded=excluded,
        notes={},
        **facts,
    )


class Held:
    """A task of which only the labels matter."""

    classes = 4

    def __init__(self, labels):
        self.labels, self.sizes = labels, tuple(map(len, labels))

    def examples(self, client):
        return Examples(torch.zeros(len(self.labels[client]), 1), torch.tensor(self.labels[client]))


def test_minorities_are_honest_clients_with_what_few_have():
    """Of nine clients fewer than a quarter are two: class 2 is held by two, class 3 by one, class 1 by three."""
    task = Held([[0, 1], [0, 1], [0, 1, 2], [0, 2, 2], [0, 3], [0], [0], [0], [0]])
    reports = [
        report((0, 2, 3, 4), (2,)),
        report((2, 3, 5), (2, 5)),
        report((0, 2, 3), ()),
        report((0, 2), (2,)),
        report((2, 3), None),  # a round that was abandoned: no judgment
        report((2, 3), (3,), not_finite=(2,)),
    ]
    found = minorities(task, reports, malicious={4}, class_accuracy=[1.0, 0.8, 0.25, None])
    assert found == [
        {"client": 2, "classes": [2], "excluded": pytest.approx(3 / 4), "accuracy": 0.25},
        {"client": 3, "classes": [2], "excluded": pytest.approx(1 / 4), "accuracy": 0.25},
    ]
    (last,) = (one for one in minorities(task, reports, (), [1.0, 0.8, 0.25, None]) if one["client"] == 4)
    assert last == {"client": 4, "classes": [3], "excluded": 0.0, "accuracy": None}
    assert minorities(task, [], {2, 4}, [1.0, 0.8, 0.5, None]) == [
        {"client": 3, "classes": [2], "excluded": None, "accuracy": 0.5}
    ]
    assert minorities(Held([[0, 1]] * 9), reports, (), [1.0] * 4) == []


def test_a_record_says_who_was_left_out(tmp_path):
    """Krum drops the holder of a rare class in every round and loses the class; the mean hears it; the median has no weights."""
    suite = {
        "name": "minority",
        "task": {"partition": "rare_class(label=3)"},
        "clients": {"total": 12, "malicious": 4},
        "training": {"algorithm": "fedsgd", "rounds": 25, "lr": 1.0},
        "seeds": [0, 5],
        "matrix": {"attack": ["none", "nan"], "defense": ["mean", "multi_krum", "median"]},
    }
    run = fg.run(suite, store=tmp_path, jobs=1)
    holder_of: dict[int, int] = {}
    for record in run.records.values():
        minority, attacked = record["result"]["minority"], record["threat_card"]["attack"] is not None
        json.dumps(minority, allow_nan=False)
        if not attacked:
            (only,) = minority
            assert only["classes"] == [3]
            assert only["accuracy"] == record["result"]["class_accuracy"][3]
            assert holder_of.setdefault(record["seed"], only["client"]) == only["client"]
            if record["label"].endswith("mean"):
                assert (only["excluded"], only["accuracy"] > 0.3) == (0.0, True)
            elif record["label"].endswith("multi_krum"):
                assert (only["excluded"], only["accuracy"] < 0.1) == (1.0, True)
            else:
                assert only["excluded"] is None
    faulty = {seed: set(Rng(seed).child("hostile").numpy().permutation(12)[:4].tolist()) for seed in holder_of}
    assert [holder in faulty[seed] for seed, holder in sorted(holder_of.items())] == [
        True,
        False,
    ]  # both cases are tried
    for record in run.records.values():
        if record["threat_card"]["attack"] is not None:
            seed = record["seed"]
            expected = [] if holder_of[seed] in faulty[seed] else [holder_of[seed]]
            assert [one["client"] for one in record["result"]["minority"]] == expected


# The examples.


def test_there_are_examples_and_the_outlier_suite_runs_in_full():
    assert {"quick.yaml", "anchor.yaml", "outliers.yaml"} <= {path.name for path in EXAMPLES}
    laid_out = lay_out(EXAMPLES[0].with_name("outliers.yaml"))[1]
    assert explain_refusals(laid_out) == {}
    names = {cell.attack.name for cell in laid_out.cells if cell.attack}
    assert names >= {*ON_DATA, "unit_error", "duplicated_client", "dropout", "stale", "huge_value", "nan", "zeros"}
    assert {cell.attack.goal for cell in laid_out.cells if cell.attack} == {"fault"}
