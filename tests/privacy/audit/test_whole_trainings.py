"""Audits of whole trainings: right ones pass, and one wire that is changed in the real classes is seen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy.stats import binom

from fedguard import api
from fedguard.architectures import rounds
from fedguard.architectures.masking.inputs import Inputs
from fedguard.architectures.server import Server
from fedguard.architectures.systems.event_server import EventServer
from fedguard.bench.audits.cells import audit_suite, training_checks
from fedguard.contracts import Participation, RoundObservation, RoundReport, SentRound, Setup
from fedguard.contracts.audit import SIGNIFICANCE
from fedguard.privacy.audit.contract import FAMILY, MOST_CHECKS
from fedguard.privacy.audit.training import server_checks
from fedguard.privacy.central import CentralDP
from fedguard.privacy.kinds.none import NoNoise
from fedguard.rng import Rng
from fedguard.tasks.engines.private import PrivateEngine

POISSON = {"clients": {"total": 20, "per_round": 0.5, "sampling": "poisson"}}
CENTRAL = {"kind": "client", "noise_multiplier": 1.0}
RECORD = {"kind": "record", "noise_multiplier": 1.0, "sample_rate": 0.25}
SHARED = {"secure_aggregation": "full", "privacy": {"kind": "distributed", "noise_multiplier": 1.0}}
SUITES = {
    "server": {"protocol": {"privacy": CENTRAL}},
    "momentum": {
        "protocol": {"privacy": CENTRAL},
        "training": {"rounds": 9, "server_momentum": 0.9, "server_lr": 1e-3},
    },
    "poisson": {**POISSON, "protocol": {"privacy": CENTRAL}},
    "adaptive": {**POISSON, "protocol": {"privacy": {**CENTRAL, "clip": {"quantile": 0.5}}}},
    "bands": {
        "clients": {"total": 20, "per_round": 5, "sampling": "cyclic"},
        "protocol": {"privacy": {**CENTRAL, "noise": {"bands": 4}}},
    },
    "record": {"clients": {"total": 12}, "protocol": {"privacy": RECORD}},
    "levels": {
        "clients": {"total": 20, "per_round": 4, "sampling": "cyclic"},
        "training": {"rounds": 12, "batch_size": 8, "lr": 1e-4, "momentum": 0.7},
        "protocol": {
            "privacy": {"kind": "record", "sample_rate": 0.25, "levels": [{"noise_multiplier": 1}, {"epsilon": 2}]}
        },
    },
    "shared": {"clients": {"total": 12}, "protocol": SHARED},
    "dropouts": {
        "clients": {"total": 12},
        "protocol": {
            "secure_aggregation": {"groups": 2},
            "colluding": 0.0,
            "dropout": {"rate": 0.1},
            "encoding": {"rotate": True},
            "privacy": {"kind": "distributed", "mechanism": "discrete_gaussian", "noise_multiplier": 1.0},
        },
    },
}
#: The same in simulated time, where devices differ and updates are old.
NETWORK = {"compute": {"seconds": 0.01, "spread": 0.5, "jitter": 0.3}, "link": {"latency": 0.05}}
IN_TIME = {
    f"{noise} under {system}": {
        "clients": {"total": 20 if noise == "server" else 12},
        "architecture": system,
        "network": NETWORK,
        "protocol": protocol,
    }
    for noise, protocol, systems in (
        (
            "server",
            {"privacy": CENTRAL},
            ("parameter_server", "parameter_server(consistency='eventual')", "fedbuff", "google"),
        ),
        ("record", {"privacy": RECORD}, ("parameter_server(consistency='eventual')", "fedbuff", "mapreduce", "basgd")),
        ("shared", SHARED, ("fedbuff", "google(over=1.1)")),
    )
    for system in systems
}
SUITES |= IN_TIME
#: Those that take a second for each seed.
DEAR = ("record", "levels", "shared", "dropouts", *(name for name in IN_TIME if not name.startswith("server")))


def plan(name):
    return api.lay_out(
        {
            "name": "watched",
            "seeds": [0],
            "clients": {"total": 20},
            "training": {"rounds": 24, "batch_size": 8},
            **SUITES[name],
        }
    )[1]


def cell(name):
    ((_, found),) = plan(name).positions
    return found


@cache
def right(name, seed):
    """What is checked of a training in which nothing was planted."""
    return training_checks(cell(name), seed)


def failing(name, seed=0):
    return {check.name.removeprefix("training: ") for check in training_checks(cell(name), seed) if not check.passed}


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        *((name, 10 if name == "server" else 1 if name in DEAR else 5) for name in SUITES if name not in IN_TIME),
        *((name, 1) for name in IN_TIME if name.startswith("server") or name == "record under fedbuff"),
        *(pytest.param(name, 5, marks=pytest.mark.slow) for name in {**dict.fromkeys(DEAR), **IN_TIME}),
        *(
            pytest.param(name, 60, marks=pytest.mark.slow)
            for name in ("server", "poisson", "adaptive", "bands", "momentum")
        ),
    ],
)
def test_right_trainings_fail_no_check(name, seeds):
    found = [check for seed in range(seeds) for check in right(name, seed)]
    assert all(check.passed for check in found)
    for check in {check.name for check in found}:  # and p-values are no smaller than uniform
        small = sum(one.p_value < 0.05 for one in found if one.name == check)
        assert small <= binom.ppf(0.9995, seeds, 0.05), check


def test_every_kind_of_noise_is_watched():
    names = {name: {check.name.removeprefix("training: ") for check in right(name, 0)} for name in SUITES}
    noise = {"noise", "places", "law", "normalizer", "rounds", "data", "coordinates"}
    each = {f"clients: {check}" for check in ("noise", "places", "law", "rounds", "data")}
    layers = {f"model: {check}" for check in ("noise", "places", "law", "rounds", "examples")}
    assert names["server"] == names["momentum"] == noise | {"model"}
    assert names["poisson"] == noise | {"model", "sampling", "draws"}
    assert names["adaptive"] == noise | {"model", "sampling", "draws", "counts"}
    assert names["bands"] == noise | {"model", "turns"}
    assert names["record"] == names["levels"] == noise | layers
    assert names["shared"] == names["dropouts"] == noise - {"data"} | {"sum"} | each
    for name in IN_TIME:
        assert names[name] == names[name.split()[0]], "what is watched of server is watched in simulated time"
    # As many again, at most, are made on canaries.
    of_canaries = {"record": noise | {"sampling", "draws"}, "shared": noise, "dropouts": noise}
    for name, found in names.items():
        assert len(found) + len(of_canaries.get(name.split()[0], found)) <= MOST_CHECKS, name
    assert FAMILY == MOST_CHECKS * SIGNIFICANCE < 0.005


# Wires. Each fault is one thing of the real classes, which canaries do not touch unless they are said to.


def renamed(monkeypatch, path, changed):
    """Streams below ``path`` of the trial's or of its cell's noise take the names that ``changed`` makes of theirs.

    None in the path stands for any number.
    """
    right = Rng.child

    def child(self, *names):
        own = self.path[2:] if self.path[:1] == ("cell",) else self.path
        here = len(own) == len(path) and all(a in (b, None) for a, b in zip(path, own, strict=True))
        return right(self, *(changed(*names) if here else names))

    monkeypatch.setattr(Rng, "child", child)


def every_round(name):
    """The stream ``name`` is asked for without the number of the round."""
    return lambda *names: (names[0], *names[2:]) if names[0] == name else names


def noise_of_every_round(monkeypatch):
    renamed(monkeypatch, (), every_round("privacy"))


def cohort_of_every_round(monkeypatch):
    renamed(monkeypatch, (), every_round("participation"))


def training_of_every_round(monkeypatch):
    renamed(monkeypatch, (), every_round("round"))


def masking_of_every_round(monkeypatch):
    renamed(monkeypatch, ("masking",), every_round("rounding"))


def one_masking_for_all(monkeypatch):
    renamed(monkeypatch, ("masking", "rounding", None, "all"), lambda client: ())


def one_training_noise_for_all(monkeypatch):
    right = PrivateEngine.train

    def train(self, model, clients, schedules, plan, out, streams):
        right(self, model, clients, schedules, plan, out, [streams[0]] * len(streams))

    monkeypatch.setattr(PrivateEngine, "train", train)


def wired_with(monkeypatch, changed):
    """The training takes other noise than the cell names."""
    right = Server.run

    def run(self, setup):
        return right(self, setup.with_parts(noise=changed(setup.cell.noise)))

    monkeypatch.setattr(Server, "run", run)


def plain_mean(monkeypatch):
    wired_with(monkeypatch, lambda noise: NoNoise())


def twice_the_clip(monkeypatch):
    right = CentralDP.release

    def release(self, updates, state, rng):
        nothing, after = right(self, updates[:0], state, rng)
        lengths = updates.norm(dim=1).clamp(min=1e-30)
        return nothing + (2 * state.clip / lengths).clamp(max=1) @ updates / self.expected, after

    monkeypatch.setattr(CentralDP, "release", release)


def half_the_servers_noise(monkeypatch):
    wired_with(monkeypatch, lambda noise: replace(noise, noise_multiplier=noise.noise_multiplier / 2))


def state_is_lost(monkeypatch):
    """The server begins anew with each round, so that nothing is taken off again."""
    right = CentralDP.release
    monkeypatch.setattr(
        CentralDP, "release", lambda self, updates, state, rng: (right(self, updates, state, rng)[0], state)
    )


def no_private_plan(monkeypatch):
    monkeypatch.setattr(Setup, "local_plan", property(lambda setup: setup.cell.plan))


def levels_of_others(monkeypatch):
    right = PrivateEngine.train

    def train(self, model, clients, schedules, plan, out, streams):
        swapped = replace(plan, private=replace(plan.private, levels=plan.private.levels[::-1]))
        right(self, model, clients, schedules, swapped, out, streams)

    monkeypatch.setattr(PrivateEngine, "train", train)


def inputs_without_noise(monkeypatch):
    right = Inputs.__init__

    def init(self, sent, encoding, noise, *rest):
        right(self, sent, encoding, None, *rest)

    monkeypatch.setattr(Inputs, "__init__", init)


def noise_shared_among_more(monkeypatch):
    wired_with(monkeypatch, lambda noise: replace(noise, noise_multiplier=noise.noise_multiplier / 2))


def half_the_noise_in_time(monkeypatch):
    def halved(self, setup):
        noise = setup.cell.noise
        less = replace(noise, noise_multiplier=noise.noise_multiplier / 2)
        return setup.with_parts(noise=less)

    monkeypatch.setattr(EventServer, "as_trained", halved)


def old_updates_in_full(monkeypatch):
    right = CentralDP.release
    monkeypatch.setattr(CentralDP, "release", lambda self, rows, state, rng, weights: right(self, rows, state, rng))


def another_model(monkeypatch):
    """The model is not the one that the noisy aggregate makes."""
    right = rounds.observe_round

    def observe_round(seen, received, result, after, gain):
        return replace(right(seen, received, result, after, gain), after=after * 1.01)

    monkeypatch.setattr(rounds, "observe_round", observe_round)


def twice_as_often(monkeypatch):
    def choose(self, rng, round):
        return tuple(range((round - 1) % (self.separation // 2), self.total, self.separation // 2))

    monkeypatch.setattr(Participation, "choose", choose)


def counts_with(factor):
    def planted(monkeypatch):
        right = CentralDP._next_clip

        def next_clip(self, lengths, clip, rng, weights):
            quiet = replace(self, clip=replace(self.clip, bit_noise=factor * self.bit_noise))
            return right(quiet, lengths, clip, rng, weights)

        monkeypatch.setattr(CentralDP, "_next_clip", next_clip)

    return planted


def uncorrected_noise(monkeypatch):
    monkeypatch.setattr(CentralDP, "sum_noise", property(lambda self: self.noise_multiplier))


FAULTS = [
    (noise_of_every_round, "server", "rounds"),
    (noise_of_every_round, "poisson", "rounds"),
    (noise_of_every_round, "adaptive", "rounds"),
    (noise_of_every_round, "bands", "rounds"),
    (noise_of_every_round, "momentum", "rounds"),
    (cohort_of_every_round, "poisson", "draws"),
    (plain_mean, "server", "noise"),
    (plain_mean, "adaptive", "noise"),
    (half_the_servers_noise, "poisson", "noise"),
    (twice_the_clip, "server", "normalizer"),
    (state_is_lost, "bands", "noise"),
    (twice_as_often, "bands", "turns"),
    (counts_with(0.0), "adaptive", "counts"),
    (counts_with(0.1), "adaptive", "counts"),
    (uncorrected_noise, "adaptive", "noise"),
    (training_of_every_round, "record", "rounds"),
    (training_of_every_round, "levels", "rounds"),
    (one_training_noise_for_all, "record", "rounds"),
    (no_private_plan, "record", "noise"),
    (levels_of_others, "levels", "noise"),
    (masking_of_every_round, "shared", "rounds"),
    (one_masking_for_all, "shared", "noise"),
    (inputs_without_noise, "shared", "noise"),
    (inputs_without_noise, "dropouts", "noise"),
    (noise_shared_among_more, "shared", "noise"),
    (noise_of_every_round, "server under fedbuff", "rounds"),
    (noise_of_every_round, "server under parameter_server(consistency='eventual')", "rounds"),
    (half_the_noise_in_time, "server under google", "noise"),
    (old_updates_in_full, "server under fedbuff", "data"),
    (another_model, "server under parameter_server(consistency='eventual')", "model"),
    (half_the_noise_in_time, "record under fedbuff", "noise"),
    (training_of_every_round, "record under parameter_server(consistency='eventual')", "rounds"),
    (one_training_noise_for_all, "record under basgd", "rounds"),
    (half_the_noise_in_time, "shared under google(over=1.1)", "noise"),
    (masking_of_every_round, "shared under fedbuff", "rounds"),
    (inputs_without_noise, "shared under fedbuff", "noise"),
]


EACH_FAULT = pytest.mark.parametrize(
    ("fault", "name", "seen_by"), FAULTS, ids=[f"{fault.__name__}-{name}" for fault, name, _ in FAULTS]
)
#: The quick ones: each fault once, where it stands first.
FIRST = list({fault.__name__: name for fault, name, _ in reversed(FAULTS)}.items())


@pytest.mark.parametrize(
    ("fault", "name", "seen_by"),
    [
        pytest.param(fault, *where, id=f"{fault.__name__}-{where[0]}", marks=[pytest.mark.slow] * (not quick))
        for fault, *where in FAULTS
        for quick in [(fault.__name__, where[0]) in FIRST]
    ],
)
def test_a_fault_of_the_wiring_is_seen(fault, name, seen_by, monkeypatch):
    fault(monkeypatch)
    assert seen_by in failing(name, 0)


@pytest.mark.slow
@EACH_FAULT
def test_a_fault_of_the_wiring_is_seen_with_other_seeds(fault, name, seen_by, monkeypatch):
    fault(monkeypatch)
    for seed in (1, 2):
        assert seen_by in failing(name, seed)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (noise_of_every_round, "server"),
        (masking_of_every_round, "shared"),
        *(
            pytest.param(fault, name, marks=pytest.mark.slow)
            for fault, name in (
                (training_of_every_round, "record"), (cohort_of_every_round, "poisson"), (no_private_plan, "record")
            )
        ),
    ],
)  # fmt: skip
def test_the_verdict_counts_the_wiring(fault, name, monkeypatch):
    """Canaries alone find nothing: they run the mechanisms with streams of their own."""
    fault(monkeypatch)
    (found,) = audit_suite(plan(name), canaries=100)
    assert found.audit.verdict == "violated" and "training" in found.audit.words
    wrong = [check.name for check in found.audit.checks if not check.passed]
    assert not found.audit.refuted and all(name.startswith("training: ") for name in wrong)


def test_a_model_that_moves_by_more_than_the_noisy_aggregate():
    made = cell("server")
    mechanism = CentralDP(noise_multiplier=1.0, expected=20, clip=1.0)
    draw, reports = Rng(0).child("updates").torch(), []
    model, state = torch.zeros(50), mechanism.start()
    for round in range(1, 7):
        updates = torch.randn(20, 50, generator=draw)
        noisy, state = mechanism.release(updates, state, Rng(0).child(round))
        reports.append(report(round, model, model + noisy, updates, noisy))
        model = model + noisy
    assert all(check.passed for check in server_checks(reports, mechanism, made))
    (seen,) = reports[3].watched
    reports[3] = replace(reports[3], watched=(replace(seen, after=seen.after + 0.01 * seen.sent.updates.mean(0)),))
    wrong = [check.name for check in server_checks(reports, mechanism, made) if not check.passed]
    assert wrong == ["training: model"]


def report(round, sent, after, updates, aggregate):
    """One round, with what the audit reads of it."""
    everybody = tuple(range(len(updates)))
    watched = RoundObservation(
        SentRound(1, sent, updates, everybody), after, tuple((one,) for one in everybody), updates, aggregate
    )
    return RoundReport(
        round, after, everybody, frozenset(), 0, (), None, None, None, None, None, None, None, {},
        chosen=everybody, clip=1.0, watched=(watched,),
    )  # fmt: skip


def test_what_is_not_watched_is_said():
    """Under FedAsync an update is part of a difference between models, so canaries alone are run."""
    said = []
    suite = {"name": "x", "seeds": 1, "architecture": "fedasync", "protocol": {"privacy": CENTRAL}}
    ((_, found),) = api.lay_out(suite)[1].positions
    assert training_checks(found, 0, said.append) == ()
    assert "fedasync adds up differences between models" in said[0]
