"""Rules that look at when an update came and from which model, against their papers' formulae as plain loops."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pytest
import torch

from fedguard.aggregation import aggregate
from fedguard.contracts import Gram, Pipeline, RuleContext, Sight, WeightRule
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.systems.scenes import cell, reports, scene
from tests.systems.test_asynchronous import UNEVEN, course

D = 5
SEES = Sight.EACH_UPDATE | Sight.MODEL | Sight.TIMES


def played(text: str, releases: list[list[dict[str, Any]]], f: int = 1, n: int = 4) -> list[list[float]]:
    """The weights that a rule gives to the updates of each aggregate, one after the other."""
    pipeline, states, found = load_registry().pipeline(text), (), []
    for number, rows in enumerate(releases, start=1):
        context = RuleContext(
            "test", SEES, f=min(f, (len(rows) - 1) // 2), round=number, rng=Rng(number), state={}, layers=(D,), shape=(1,), server_lr=1.0,
            model=torch.zeros(D),
            clients=tuple(row["client"] for row in rows),
            staleness=torch.tensor([row["staleness"] for row in rows]),
            versions=torch.tensor([number - 1 - row["staleness"] for row in rows]),
            arrived=torch.tensor([row["at"] for row in rows], dtype=torch.float64),
            scale=torch.tensor([row["scale"] for row in rows], dtype=torch.float64),
            starts=torch.tensor([row["start"] for row in rows]).float(),
            federation=(f, n),
        )  # fmt: skip
        sent = torch.tensor([[row["scale"] * value for value in row["update"]] for row in rows]).float()
        result = aggregate(pipeline, sent, context, states)
        states = result.states
        found.append(result.weights.tolist())
    return found


def stream(length: int, clients: int, rows: int = 1, seed: int = 0, wild: tuple[int, ...] = ()) -> list[list[dict]]:
    """Updates of a bowl, whose slope differs by client; those who are ``wild`` send noise."""
    draw = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> list[float]:
        return (scale * torch.randn(D, generator=draw)).tolist()

    releases = []
    for number in range(length):
        arrived = []
        for place in range(rows):
            client = int(torch.randint(clients, (1,), generator=draw))
            age = int(torch.randint(min(number + 1, 4), (1,), generator=draw))
            start = [math.sin(0.3 * (number - age) + axis) for axis in range(D)]
            update = [-(1 + 0.1 * client) * w for w in start] if client not in wild else normal(5.0)
            scale, at = 1 / math.sqrt(1 + age), number + (place * 7 % rows) / 10
            arrived.append(
                {"client": client, "start": start, "update": update, "staleness": age, "scale": scale, "at": at}
            )
        releases.append(arrived)
    return releases


def length(a: list[float], b: list[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


# Kardam.


def kardam(releases: list[list[dict]], f: int, n: int, alpha: float, *, damped=True, frequency=True, lipschitz=True):
    """Damaskinos et al., one update after the other; float32 vectors as the rule is given them."""
    single = lambda values: torch.tensor(values).float().double().tolist()  # noqa: E731
    last, coefficients, passed, found = {}, {}, [], []
    for rows in releases:
        weights = [0.0] * len(rows)
        for place in sorted(range(len(rows)), key=lambda place: rows[place]["at"]):
            row = rows[place]
            client, update, start = row["client"], row["update"], single(row["start"])
            smooth = True
            if client in last and length(start, last[client][1]) > 0:
                coefficients[client] = length(update, last[client][0]) / length(start, last[client][1])
            if client in coefficients:
                ranked = sorted(coefficients.values())
                smooth = coefficients[client] <= ranked[math.ceil((n - f) / n * len(ranked)) - 1] + 1e-4
            last[client] = (update, start)
            window = passed[len(passed) - 2 * f :] if f else []
            if (smooth or not lipschitz) and (client not in window or not frequency):
                passed.append(client)
                weights[place] = (math.exp(-alpha * row["staleness"]) if damped else 1.0) / len(rows)
        found.append(weights)
    return found


@pytest.mark.parametrize("wild", [True, False])
@pytest.mark.parametrize(("rows", "f", "n"), [(1, 1, 4), (1, 2, 8), (5, 1, 4), (1, 0, 4)])
def test_kardam_is_its_papers(rows, f, n, wild):
    releases = stream(60, n, rows, wild=tuple(range(f)) if wild else ())
    ours = played("kardam(alpha=0.2)", releases, f, n)
    same = lambda theirs: all(one == pytest.approx(other, abs=1e-9) for one, other in zip(ours, theirs, strict=True))  # noqa: E731
    assert same(kardam(releases, f, n, 0.2))
    for left_out in ("damped", "frequency", "lipschitz"):  # the check sees each part of it
        assert same(kardam(releases, f, n, 0.2, **{left_out: False})) == (f == 0 and left_out != "damped")


def test_kardam_leaves_out_noise_and_keeps_what_is_smooth():
    """One client in eight sends noise: once all have coefficients none of it passes. Most others pass, unless they are among
    the last two who did."""
    releases = stream(200, 8, seed=3, wild=(5,))
    weights = [one for (one,) in played("kardam(alpha=0)", releases, f=1, n=8)]
    clients = [row["client"] for (row,) in releases]
    noisy = [weight for weight, client in zip(weights[40:], clients[40:], strict=True) if client == 5]
    assert len(noisy) > 10 and sum(noisy) == 0
    honest = [weight for weight, client in zip(weights, clients, strict=True) if client != 5]
    assert 0.5 < sum(honest) / len(honest) < 0.9


def test_of_three_that_kardam_passes_in_a_row_no_two_are_of_one_client():
    """A client that floods the server has one in three at most, and smoothness is no excuse."""
    crowd = stream(100, 4, seed=1)
    flood = [[{**row, "client": 0}] if number % 4 else [row] for number, (row,) in enumerate(crowd)]
    weights = [one for (one,) in played("kardam(alpha=0)", flood, f=1, n=4)]
    passed = [row["client"] for (row,), weight in zip(flood, weights, strict=True) if weight]
    assert len(passed) > 15
    assert all(len(set(passed[at : at + 3])) == 3 for at in range(len(passed) - 2))


def test_kardam_does_not_stop_where_the_model_stands_still():
    """Nobody's model moves, and so nobody has a coefficient."""
    standing = [[{"client": k % 4, "start": [1.0] * D, "update": [float(k)] * D, "staleness": 0, "scale": 1.0, "at": k}] for k in range(12)]  # fmt: skip
    assert played("kardam", standing, f=1, n=4) == [[1.0]] * 12


def test_who_was_rejected_gains_nothing_by_answering_again_from_the_same_model():
    def push(client, place, value):
        start = [float(place)] * D
        return [
            {"client": client, "start": start, "update": [float(value)] * D, "staleness": 0, "scale": 1.0, "at": 0.0}
        ]

    first = [push(client, 0, 0) for client in range(4)] + [push(client, 1, 1) for client in range(3)]
    found = played("kardam", [*first, push(3, 1, 50), push(3, 1, 50), push(3, 1, 50), push(0, 2, 2)], f=1, n=4)
    assert [one for (one,) in found[7:]] == [0.0, 0.0, 0.0, 1.0]


# AsyncFilter.


def test_asyncfilter_compares_within_a_model_over_all_aggregates():
    """Models pull apart by a distance that would drown the poison: only those of one model may be compared."""
    draw = torch.Generator().manual_seed(2)
    centers = 50 * torch.randn(12, D, generator=draw)
    releases = []
    for number in range(2, 12):
        rows = []
        for place in range(9):
            age = place % 3 if number > 3 else 0
            poison = place == 4
            update = centers[number - age] + 0.5 * torch.randn(D, generator=draw) + (20 if poison else 0)
            rows.append({"client": place, "start": [0.0] * D, "update": update.tolist(), "staleness": age, "scale": (1 + age) ** -0.5, "at": place})  # fmt: skip
        releases.append(rows)
    found = played("asyncfilter", releases)
    assert all(weights[4] == 0 for weights in found)
    kept = [sum(weight > 0 for weight in weights) for weights in found]
    assert sum(kept) > 0.7 * 9 * len(kept)
    assert all(sum(weights) == pytest.approx(1) for weights in found)
    mixed = [[{**row, "staleness": 0} for row in rows] for rows in releases]  # the planted fault: one group for all
    assert any(weights[4] > 0 for weights in played("asyncfilter", mixed)[2:])


def test_the_scores_of_asyncfilter_are_those_of_the_running_means():
    """Two models, few updates of each at a time: the state is the mean and the squares of all so far."""
    rule = load_registry().pipeline("asyncfilter").rule
    updates = {1: [[1.0] * D, [3.0] * D, [8.0] * D], 2: [[0.0] * D, [4.0] * D]}
    first = [row(updates[1][0], 0, 1.0), row(updates[1][1], 0, 1.0)]
    second = [row(updates[1][2], 1, 0.5), row(updates[2][0], 0, 1.0), row(updates[2][1], 0, 1.0)]
    state: dict[str, torch.Tensor] = {}
    for number, rows in ((2, first), (3, second)):
        state = remembered(rule, number, rows, state)
    assert state["mean 1"].tolist() == pytest.approx([4.0] * D)
    assert state["mean 2"].tolist() == pytest.approx([2.0] * D)
    squares = D * (1 + 1 + 16)  # from the means of their own aggregates: 2, 2 and 4
    assert state["so far 1"].tolist() == pytest.approx([3, squares])
    assert state["so far 2"].tolist() == pytest.approx([2, D * 8])
    few = replace(rule, kept=1)
    assert set(remembered(few, 3, second, state)) == {"mean 2", "so far 2"}


def row(update, staleness, scale):
    return {"client": 0, "start": [0.0] * D, "update": update, "staleness": staleness, "scale": scale, "at": 0.0}


def remembered(rule, number, rows, state):
    context = RuleContext(
        "test", SEES, f=1, round=number, rng=Rng(0), state=state, layers=(D,), shape=(1,), server_lr=1.0,
        staleness=torch.tensor([one["staleness"] for one in rows]),
        versions=torch.tensor([number - 1 - one["staleness"] for one in rows]),
        scale=torch.tensor([one["scale"] for one in rows], dtype=torch.float64),
    )  # fmt: skip
    sent = torch.tensor([[one["scale"] * value for value in one["update"]] for one in rows])
    names = tuple(name for name in state if name.startswith("mean "))
    base = torch.cat([sent, *(state[name][None] for name in names), torch.zeros(1, D)]).double()
    gram = Gram(lambda: base @ base.T, len(rows), names, lambda: sent)
    return rule.remember(context, torch.zeros(D), gram)


def test_asyncfilter_leaves_nobody_out_where_only_rounding_keeps_scores_apart():
    """Five updates of one model lie equally far from their mean, but for what float32 cannot hold."""
    for shift in range(20):
        base = 0.1 + shift / 7
        rows = [row([base + (axis == place) for axis in range(D)], 0, 1.0) for place in range(D)]
        (found,) = played("asyncfilter", [rows])
        assert found == pytest.approx([1 / D] * D)


# Zeno++.


@pytest.mark.parametrize(("rho", "epsilon"), [(0.0, 0.0), (0.2, 0.0), (0.2, 1.5)])
def test_zeno_plus_plus_is_its_papers(rho, epsilon):
    """Algorithm 2: a candidate is brought to the length of the server's vector, and added if its score suffices."""
    draw = torch.Generator().manual_seed(1)
    outcomes = set()
    for _ in range(30):
        root, rows = torch.randn(D, generator=draw), torch.randn(4, D, generator=draw) * 3
        expected = [0.0] * D
        for update in rows.double().tolist():
            server = root.double().tolist()
            factor = length(server, [0.0] * D) / length(update, [0.0] * D)
            candidate = [factor * value for value in update]
            inner = sum(a * b for a, b in zip(candidate, server, strict=True))
            passes = inner - rho * sum(value**2 for value in candidate) >= -epsilon
            outcomes.add(passes)
            if passes:
                expected = [total + value / 4 for total, value in zip(expected, candidate, strict=True)]
        context = RuleContext(
            "test", Sight.EACH_UPDATE | Sight.ROOT_DATA, f=1, round=1, rng=Rng(0), state={}, layers=(D,), shape=(1,),
            server_lr=1.0, root=root,
        )  # fmt: skip
        text = f"zeno_plus_plus(rho={rho}, epsilon={epsilon})"
        assert aggregate(load_registry().pipeline(text), rows, context).vector.tolist() == pytest.approx(
            expected, abs=1e-5
        )
    assert outcomes == {True, False}


def test_zeno_plus_plus_stays_where_it_is_if_nobody_passes_or_nobody_moves():
    for root, rows in ((torch.ones(D), -torch.ones(1, D)), (torch.ones(D), torch.zeros(2, D)), (torch.zeros(D), torch.ones(1, D))):  # fmt: skip
        context = RuleContext(
            "test", Sight.EACH_UPDATE | Sight.ROOT_DATA, f=1, round=1, rng=Rng(0), state={}, layers=(D,), shape=(1,),
            server_lr=1.0, root=root,
        )  # fmt: skip
        assert aggregate(load_registry().pipeline("zeno_plus_plus"), rows, context).vector.tolist() == [0.0] * D


# What a rule is told is what happened.


@dataclass(frozen=True, kw_only=True)
class Looks(WeightRule):
    """The mean, and a note of all that it saw."""

    name = "looks"
    needs = (SEES,)
    seen: list = field(default_factory=list)

    def weights(self, gram, context):
        self.seen.append((gram.vectors.clone(), context))
        return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)


@pytest.mark.parametrize("attack", ["none", "nan"])
@pytest.mark.parametrize(
    "system", ["fedbuff(buffer=5)", "fedasync(alpha=0.5)", "parameter_server(consistency='eventual')"]
)
def test_a_rule_is_told_the_age_and_the_start_of_each_row(system, attack):
    """Each row is what honest training gives from the start that is told for it, scaled for the age that is told; those that
    are dropped take their times along."""
    made, setup = scene(
        system, 1, network=UNEVEN, clients={"total": 8, "malicious": 0 if attack == "none" else 2}, attack=attack, training={"rounds": 3},
    )  # fmt: skip
    rule = Looks()
    setup = setup.with_parts(pipeline=Pipeline((rule,)), rule_sees=SEES)
    models = [setup.task.initial_model(setup.rng.child("model"))]
    list(made.architecture.run(setup))
    releases = list(islice(course(made, setup), len(rule.seen) * 4))
    releases = [
        one for one in releases if attack == "none" or any(a.client not in setup.malicious for a in one.arrivals)
    ]
    turns = {(a.client, a.ended): a for one in releases for a in one.arrivals}
    ages = set()
    for rows, context in rule.seen:
        models.append(context.model)
        for client, row_, at, age, scale, start in zip(
            context.clients, rows, context.arrived.tolist(), context.staleness.tolist(), context.scale.tolist(), context.starts, strict=True,
        ):  # fmt: skip
            assert client not in setup.malicious
            arrival, out = turns[client, at], torch.empty(1, setup.task.dim)
            setup.task.local_updates(start, [client], setup.local_plan, setup.rng.child("round", arrival.turn), out)
            drift = start - context.model if system.startswith("fedasync") else 0
            assert torch.allclose(row_, scale * (out[0] + drift), atol=1e-5)
            assert scale == made.architecture.weight(age)
            ages.add(age)
        assert context.federation == (setup.cell.assumed_f, 8)
    assert len(ages) > 3


def test_starts_are_stacked_only_for_a_rule_that_sees_the_model_too():
    made, setup = scene("fedbuff(buffer=3)", training={"rounds": 1})
    for sees in (Sight.EACH_UPDATE | Sight.TIMES, Sight.EACH_UPDATE):
        rule = Looks()
        object.__setattr__(rule, "needs", (sees,))
        list(made.architecture.run(setup.with_parts(pipeline=Pipeline((rule,)), rule_sees=sees)))
        assert rule.seen and all("starts" not in context._values for _, context in rule.seen)
        assert all(("staleness" in context._values) == (Sight.TIMES in sees) for _, context in rule.seen)


# In a training.

CROWD: dict[str, Any] = {"network": UNEVEN, "clients": {"total": 10, "malicious": 2}, "server": {"root_data": 100}}


def final(defense: str, attack: str, seed: int, system: str = "parameter_server(consistency='eventual')") -> float:
    """Accuracy after 25 rounds of gradients of all examples."""
    training, evaluation = {"rounds": 25, "batch_size": 200, "lr": 0.5}, {"every": 25}
    *_, last = reports(system, seed, defense=defense, attack=attack, training=training, evaluation=evaluation, **CROWD)
    return last.evaluation.accuracy


#: Two of ten answer ten times as fast, and nobody attacks.
QUICK_TWO: dict[str, Any] = {
    "network": {
        "compute": {"seconds": 0.001, "slow": {"share": 0.8, "factor": 10, "lasting": True}},
        "link": {"latency": 0.001},
    },
    "clients": {"total": 10, "malicious": 2},
    "training": {"rounds": 30, "local_steps": 1, "batch_size": 64, "lr": 0.2},
}


def kardam_trained(made, setup, alpha: float, versions: bool = False) -> tuple[list[torch.Tensor], list[list[int]]]:
    """Damaskinos et al. around a server, one update after the other: it is as old as many updates have passed since.

    Args:
        versions: whether what is rejected counts, too.
    """
    n, f, moved = setup.cell.clients.total, setup.cell.assumed_f, [0]
    models = [setup.task.initial_model(setup.rng.child("model"))]
    last, coefficients, passed, ages = {}, {}, [], []
    for release in islice(course(made, setup), n * setup.cell.training.rounds):
        (one,) = release.arrivals
        start, out = models[one.version], torch.empty(1, setup.task.dim)
        setup.task.local_updates(start, [one.client], setup.local_plan, setup.rng.child("round", one.turn), out)
        update, smooth, client = out[0].double(), True, one.client
        if client in last:
            changed, way = (float((a - b).norm()) for a, b in zip((update, start.double()), last[client], strict=True))
            if way > 0:
                coefficients[client] = changed / way
            if client in coefficients:
                ranked = sorted(coefficients.values())
                smooth = coefficients[client] <= ranked[math.ceil((n - f) / n * len(ranked)) - 1]
        last[client] = (update, start.double())
        passes = smooth and client not in passed[-2 * f :]
        age = release.version - one.version if versions else moved[release.version] - moved[one.version]
        ages.append(age)
        moved.append(moved[-1] + passes)
        if passes:
            passed.append(client)
        weight = math.exp(-alpha * age) * passes / n
        models.append((models[-1].double() + weight * update).float() if passes else models[-1])
    return models, ages


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_what_kardam_rejects_makes_nobody_older(alpha):
    """The two quick ones may not pass one after the other, so seven in ten are rejected, and honest updates are that much younger."""
    made, setup = scene("parameter_server(consistency='eventual')", 1, defense=f"kardam(alpha={alpha})", **QUICK_TWO)
    found = list(made.architecture.run(setup))
    theirs, ages = kardam_trained(made, setup, alpha)
    way = (theirs[-1] - theirs[0]).norm()
    assert (found[-1].model - theirs[-1]).norm() < 1e-4 * way
    assert [age for one in found for age in one.moment.staleness] == ages
    wrong, older = kardam_trained(made, setup, alpha, versions=True)
    assert sum(older) > 3 * sum(ages) and (wrong[-1] - theirs[-1]).norm() > 0.1 * way


def test_only_an_aggregate_that_moves_the_model_makes_updates_older():
    """Whatever the rule is: Zeno++ that takes nothing leaves all updates fresh, for FedAsync's weights too."""
    system = "fedasync(alpha=0.5)"
    made, setup = scene(system, 1, defense="zeno_plus_plus(rho=1e6)", network=UNEVEN, server={"root_data": 50})
    found = list(made.architecture.run(setup))
    assert all(torch.equal(one.model, found[0].model) for one in found)
    assert {age for one in found for age in one.moment.staleness} == {0}
    _, plain = scene(system, 1, network=UNEVEN)
    assert max(age for one in made.architecture.run(plain) for age in one.moment.staleness) > 3


def test_where_noise_is_added_ages_are_those_that_it_was_planned_with():
    """Each aggregate counts, since an epsilon is promised before anybody trains."""
    noisy = {
        "protocol": {
            "privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.2}
        }
    }
    system, training = "fedbuff(buffer=2)", {"local_steps": 1, "batch_size": 16}
    made, setup = scene(
        system, 1, defense="kardam", network=UNEVEN, training=training, clients={"total": 6, "malicious": 1}, **noisy
    )
    told = [age for one in made.architecture.run(setup) for age in one.moment.staleness]
    planned = [age for one in islice(course(made, setup), len(told)) for age in one.staleness()]
    assert told == planned[: len(told)]


@pytest.mark.slow
def test_who_stands_what_where_each_update_counts_by_itself():
    """In seed 1 the malicious clients are among the quick ones. Zeno++ stands all; Kardam stands noise, and not a reversed mean,
    which moves as smoothly as what it reverses."""
    noise, reversed_mean = "gaussian(scale=0.5)", "sign_flip(scale=5)"
    for seed in (0, 1):
        assert final("zeno_plus_plus", noise, seed) > 0.8 and final("zeno_plus_plus", reversed_mean, seed) > 0.8
        assert final("kardam(alpha=0)", noise, seed) > 0.75 and final("kardam(alpha=0)", "none", seed) > 0.8
    assert final("mean", noise, 1) < 0.6 and final("mean", reversed_mean, 1) < 0.3
    assert final("kardam(alpha=0)", reversed_mean, 1) < 0.6
    buffer = "fedbuff(buffer=10)"
    assert final("asyncfilter", noise, 1, buffer) > 0.7 > 0.6 > final("mean", noise, 1, buffer)
    assert final("asyncfilter", reversed_mean, 1, buffer) < 0.5  # quick clients are most of each model's updates


@pytest.mark.parametrize("defense", ["kardam", "asyncfilter", "zeno_plus_plus"])
def test_each_runs_where_nobody_waits_and_against_those_who_have_a_copy_of_it(defense):
    *_, last = reports("fedbuff(buffer=8)", defense=defense, attack="gram_search", training={"rounds": 2}, **CROWD)
    assert last.abandoned is None and last.model.isfinite().all()


def test_it_is_refused_where_no_update_has_an_age():
    for system in ("server", "mapreduce"):
        (reason,) = cell(system, defense="asyncfilter").verdict.reasons
        assert "here no update has an age of its own" in reason and "fedbuff" in reason
    (reason,) = cell("fedasync", defense="kardam").verdict.reasons
    assert "differences between models" in reason and "parameter_server" in reason
    assert not cell("fedasync", defense="zeno_plus_plus", server={"root_data": 20}).verdict.reasons
    assert not cell("parameter_server(consistency='bounded', tau=2)", defense="kardam").verdict.reasons
