"""Secure aggregation in the training core: what the server gets, how exact it is, who is refused, and what records say."""

from __future__ import annotations

import dataclasses
import itertools
import math
from statistics import fmean

import numpy as np
import pytest
import torch
from rich.console import Console

import fedguard as fg
from fedguard.api import lay_out
from fedguard.architectures.masking import decoding
from fedguard.architectures.masking.full import FullMasking
from fedguard.architectures.masking.groups import Groups
from fedguard.architectures.masking.plain import NoMasking
from fedguard.architectures.rule_context import ColluderPipeline
from fedguard.architectures.server import Server
from fedguard.architectures.wire import transmit
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.terminal import render_terminal
from fedguard.bench.records.record import reproducible
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.check import explain_refusals, render_plan
from fedguard.bench.running.estimate import estimate
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.protocol import protocol_card
from fedguard.bench.running.trial import run_trial
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    ROWS,
    Dropout,
    Fate,
    FixedPoint,
    Participation,
    Pipeline,
    PoisonAttack,
    Protocol,
    SentRound,
    Sight,
    Training,
    WeightRule,
)
from fedguard.errors import ConfigError, NotObservable
from fedguard.privacy.distributed import DistributedDP
from fedguard.privacy.kinds.distributed import DistributedNoise
from fedguard.registry import load_registry
from fedguard.secagg.encoding import OverflowBudgetError
from fedguard.visibility import derive_exposure, judge
from tests.architectures.test_training import deal, set_up
from tests.parts import parts_of_protocol
from tests.reference import mean, median
from tests.table import normal

FULL = Protocol(secure_aggregation="full")
STEPS = ("advertise_keys", "share_keys", "masked_input", "consistency", "unmask")


def federation(protocol, *, clients=20, pipeline="mean", rounds=4, root=0, told=None, seed=0, **others):
    """A set-up on digits, with the sights that the protocol leaves."""
    task = deal("softmax", partition=others.pop("partition", "dirichlet(alpha=0.5)"), clients=clients, root=root)
    training = Training(rounds=rounds, lr=0.1, batch_size=16)
    setup = set_up(task, training, pipeline=pipeline, told=told or 0, seed=seed, **others)
    parts = parts_of_protocol(protocol)
    sees = derive_exposure(Server.exposes, parts["masking"], root > 0)
    return setup.with_parts(**parts, rule_sees=sees.server, attack_sees=sees.clients)


def sent(setup, updates, *, malicious=(), round=1) -> SentRound:
    """One round in which client i sends row i."""
    clients = tuple(range(len(updates)))
    return transmit(setup, SentRound(round, torch.zeros(setup.task.dim), updates, clients, frozenset(malicious)))


def receiver(setup):
    return setup.cell.masking.receiver(setup)


def random_round(setup, *, n=None, scale=0.1, **others) -> tuple[SentRound, torch.Tensor]:
    updates = normal(n or len(setup.task.sizes), setup.task.dim, spread=scale, center=0.0)
    return sent(setup, updates.clone(), **others), updates.double()


def cell(**settings) -> PlannedCell:
    """A small cell; dotted keys with ``__`` for the dot."""
    base = {"clients": {"total": 20, "malicious": 2}, "training": {"rounds": 3}, "attack": "sign_flip"}
    return build_cell(CellConfig.model_validate({**base, **settings}), load_registry())


# What the server gets


def test_fedavg_under_masks_is_the_plain_run_but_for_the_rounding():
    """One coordinate of the mean of k is off by at most 1/S, and by sqrt(1 / 6k) / S in the mean square.

    The second is that of fractions spread evenly, which those of the coordinates that move are.
    """
    silent = Dropout(rate=0.1)
    ours = [*Server().run(federation(dataclasses.replace(FULL, dropout=silent), rounds=2))]
    plain = [*Server().run(federation(Protocol(dropout=silent), rounds=2))]
    assert [set(one.clients) for one in ours] == [set(one.clients) for one in plain]
    assert any(one.of_fate(Fate.SILENT) for one in ours)
    scale, k = (2**19 - 1) / 4.0, len(ours[0].clients)
    off = (ours[0].model - plain[0].model).double()
    moved = off[(plain[0].model - federation(FULL).task.initial_model(federation(FULL).rng.child("model"))) != 0]
    assert off.abs().max() < 1 / scale + 1e-6  # float32 adds the last figure
    assert float(moved.square().mean().sqrt()) == pytest.approx(math.sqrt(1 / (6 * k)) / scale, rel=0.1)
    assert (ours[-1].model - plain[-1].model).abs().max() < 20 / scale
    assert ours[-1].evaluation.accuracy == pytest.approx(plain[-1].evaluation.accuracy, abs=0.01)


@pytest.mark.parametrize(
    "encoding", [FixedPoint(bits=24), FixedPoint(bits=24, rotate=True), FixedPoint(bits=40, ring=64)]
)
def test_the_error_in_the_record_is_the_true_one(encoding):
    setup = federation(dataclasses.replace(FULL, encoding=encoding), clients=10)
    wire, updates = random_round(setup)
    received = receiver(setup).receive(wire)
    truth = torch.tensor(mean(updates.tolist()), dtype=torch.float64)
    error = float((received.rows[0].double() - truth).norm() / truth.norm())
    assert received.masked.error == pytest.approx(error, rel=0.05, abs=1e-7)  # float32 rows
    assert error < 1e-4
    assert received.masked.clipped == 0.0


def test_coordinates_beyond_the_clip_are_cut_and_counted():
    setup = federation(dataclasses.replace(FULL, encoding=FixedPoint(clip=0.1)), clients=10)
    wire, updates = random_round(setup)
    received = receiver(setup).receive(wire)
    cut = updates.clamp(-0.1, 0.1)
    assert (received.rows[0].double() - cut.mean(0)).abs().max() < 0.1 / (2**19 - 1) + 1e-7
    assert received.masked.clipped == pytest.approx(float((updates.abs() > 0.1).double().mean()), abs=1e-9)


def test_under_groups_the_rows_are_the_means_of_a_partition():
    setup = federation(Protocol(secure_aggregation={"groups": 4}, dropout=Dropout(rate=0.1)), clients=23, told=3)
    wire, updates = random_round(setup)
    received = receiver(setup).receive(wire)
    everyone = sorted(client for row in received.behind for client in row)
    assert everyone == sorted(set(range(23)) - set(wire.of_fate(Fate.SILENT)))
    assert wire.of_fate(Fate.SILENT) and len(received.behind) == 4
    for row, members in zip(received.rows.tolist(), received.behind, strict=True):
        expected = mean([updates[client].tolist() for client in members])
        assert max(abs(a - b) for a, b in zip(row, expected, strict=True)) < 4 / (2**19 - 1) + 1e-6
    assert received.assumed_f == 3
    assert received.samples is None  # nobody tells


def test_groups_are_redrawn_in_each_round_or_never():
    for redraw in (True, False):
        mode = receiver(federation(Protocol(secure_aggregation={"groups": 4, "redraw": redraw})))
        rounds = [tuple(mode.deal(range(20), round)) for round in (1, 2, 3)]
        assert len(set(rounds)) == (3 if redraw else 1)
        for groups in rounds:
            assert sorted(itertools.chain(*groups)) == list(range(20))
            assert {len(group) for group in groups} == {5}


@pytest.mark.parametrize("mode", [FullMasking(), Groups(groups=4)])
def test_clients_weigh_themselves_where_the_rule_weighs_by_samples(mode):
    setup = federation(Protocol(secure_aggregation=mode.setting), clients=16, pipeline="weighted_mean", rounds=2)
    wire, updates = random_round(setup)
    received = receiver(setup).receive(wire)
    sizes = setup.task.sizes
    for row, members, total in zip(received.rows.tolist(), received.behind, received.samples.tolist(), strict=True):
        assert total == sum(sizes[client] for client in members)
        for k in (0, 17, 400):
            expected = sum(sizes[client] * float(updates[client, k]) for client in members) / total
            assert row[k] == pytest.approx(expected, abs=4 / (2**19 - 1) * max(sizes) / fmean(sizes))
    plain = Server().run(setup.with_parts(masking=NoMasking()))
    assert max((a.model - b.model).abs().max() for a, b in zip(Server().run(setup), plain, strict=True)) < 1e-3


def test_a_malicious_client_saturates_the_ring_and_two_wrap_it_around():
    """Honest zeros are exact, so the sum is the colluders' alone: 2^31 - 1, and twice that is -2."""
    scale = (2**19 - 1) / 4.0
    for malicious, total in (((3,), 2**31 - 1), ((3, 5), -2), ((3, 5, 6), 2**31 - 3)):
        setup = federation(FULL, clients=8)
        updates = torch.zeros(8, setup.task.dim)
        updates[list(malicious)] = 1e6
        received = receiver(setup).receive(sent(setup, updates, malicious=malicious))
        assert received.rows[0].tolist() == pytest.approx([total / scale / 8] * setup.task.dim, rel=1e-6)
    report = [*Server().run(federation(FULL, clients=8, attack="huge_value", malicious=(3,), told=1))][-1]
    assert report.model.isfinite().all() and report.abandoned is None


def test_an_update_that_is_not_finite_cannot_be_encoded():
    setup = federation(FULL, clients=10, rounds=2, attack="nan", malicious=(1, 4), told=2)
    for report in Server().run(setup):
        assert report.not_finite == (1, 4)
        assert set(report.clients) == set(range(10)) - {1, 4}
        assert report.assumed_f == 1  # one row, which the two may have spoilt for all the server knows
    # 5 survive, and a session of 10 needs 6
    many = federation(FULL, clients=10, rounds=2, attack="nan", malicious=range(5), told=5)
    assert all("TooFewSurvivors" in report.abandoned for report in Server().run(many))


def test_norm_bound_holds_for_malicious_clients_too():
    setup = federation(dataclasses.replace(FULL, norm_bound=0.5), clients=10)
    wire, updates = random_round(setup, scale=1.0, malicious=(0, 1))
    lengths = updates.norm(dim=1)
    assert lengths.min() > 0.5
    received = receiver(setup).receive(wire)
    bounded = [[0.5 * value / math.hypot(*row) for value in row] for row in updates.tolist()]
    assert torch.allclose(received.rows[0].double(), torch.tensor(mean(bounded)).double(), atol=1e-5)
    bound = dataclasses.replace(FULL, norm_bound=0.1)
    flipped = federation(bound, clients=10, attack="sign_flip(scale=1000)", malicious=(0,))
    assert max(float(report.aggregate["hostile_length"]) for report in Server().run(flipped)) <= 1.5
    assert "idealised" in protocol_card(cell(protocol={"secure_aggregation": "full", "norm_bound": 1.0}))["labels"][1]


# Dropouts


def test_the_same_clients_fall_silent_in_every_cell_and_more_of_them_at_a_higher_rate():
    lost = {}
    for rate in (0.0, 0.1, 0.3):
        for mode, pipeline in ((NoMasking(), "median"), (FullMasking(), "mean")):
            protocol = Protocol(secure_aggregation=mode.setting, dropout=Dropout(rate=rate))
            setup = federation(protocol, pipeline=pipeline)
            found = [transmit(setup, SentRound(round, torch.zeros(3), torch.zeros(20, 3), tuple(range(20)))).fates for round in range(1, 101)]  # fmt: skip
            assert lost.setdefault(rate, found) == found
    assert all(few.keys() <= more.keys() for few, more in zip(lost[0.1], lost[0.3], strict=True))
    assert sum(map(len, lost[0.0])) == 0
    assert abs(sum(map(len, lost[0.1])) - 200) < 3 * math.sqrt(2000 * 0.1 * 0.9)


@pytest.mark.parametrize("step", STEPS)
def test_a_round_is_lost_exactly_when_too_few_are_left(step):
    """Eight clients without colluders: a quorum of five has to answer to the end, so three may fall silent."""
    protocol = Protocol(secure_aggregation="full", colluding=0.0, dropout=Dropout(rate=0.35, at=step))
    setup = federation(protocol, clients=8, rounds=6, seed=1)
    before, seen = setup.task.initial_model(setup.rng.child("model")), set()
    for report in Server().run(setup):
        silent = transmit(setup, SentRound(report.round, before, torch.zeros(8, 1), tuple(range(8)))).fates
        lost = len(silent) > 3
        seen.add(lost)
        assert (report.abandoned is not None) == lost
        if lost:
            assert "TooFewSurvivors" in report.abandoned or "quorum" in report.abandoned
            assert torch.equal(report.model, before)
            assert report.clients == () and report.masked.anonymity is None
        else:
            included = set(range(8)) - (silent.keys() if step in STEPS[:3] else set())
            assert set(report.clients) == included
            assert report.of_fate(Fate.SILENT) == (tuple(sorted(silent)) if step in STEPS[:3] else ())
            assert report.masked.anonymity == len(included)
        before = report.model
    assert seen == {True, False}


def test_without_masks_only_those_count_as_lost_who_never_send():
    for step in STEPS:
        reports = [*Server().run(federation(Protocol(dropout=Dropout(rate=0.3, at=step)), clients=8))]
        assert any(report.of_fate(Fate.SILENT) for report in reports) == (step in STEPS[:3])
        assert all(len(report.clients) + len(report.of_fate(Fate.SILENT)) == 8 for report in reports)


# Who sees what


def verdict(defense, mode, **others):
    return cell(defense=defense, protocol={"secure_aggregation": mode}, **others).verdict


def test_krum_is_refused_under_full_masks_and_runs_on_means_of_groups():
    assert "krum needs each client's update" in verdict("krum", "full").reasons[0]
    assert "secure_aggregation: full hides it" in verdict("krum", "full").reasons[0]
    assert verdict("krum", {"groups": 5}).reasons == ()
    assert verdict("krum", {"groups": 5}).rule_sees == Sight.GROUP_SUMS
    few = verdict("krum", {"groups": 4}, clients={"total": 20, "malicious": 3}).reasons
    assert "krum needs n >= 2f + 3" in few[0] or "krum needs n >= 2f + 1" in few[0]
    assert "n counts groups" in few[0]
    setup = federation(Protocol(secure_aggregation={"groups": 5}), pipeline="krum", rounds=2, told=1)
    for report in Server().run(setup):
        assert report.abandoned is None
        assert len(report.excluded) == 16  # all but the chosen group


@pytest.mark.parametrize("defense", ["foolsgold", "monna", "fl_detector"])
def test_rules_that_look_at_single_clients_are_refused_under_groups(defense):
    for redraw in (True, False):
        reasons = verdict(defense, {"groups": 5, "redraw": redraw}).reasons
        assert "needs each client's update" in reasons[0] and "groups hides it" in reasons[0]


def test_a_rule_that_looks_up_clients_is_refused_whatever_it_declares():
    class Remembers(WeightRule):
        name, needs, reads_clients = "remembers", ROWS, True

        def weights(self, gram, context):
            return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)

    for mode in (Groups(groups=5), NoMasking()):
        found = judge(Pipeline((Remembers(),)), None, derive_exposure(Server.exposes, mode), cell().threat, 5, 1, mode)
        assert (
            [*found.reasons] == [] if mode == NoMasking() else "looks up the client behind each row" in found.reasons[0]
        )


def test_a_rule_is_told_of_no_client_behind_a_mean():
    class Nosy(WeightRule):
        name, needs = "nosy", ROWS

        def weights(self, gram, context):
            with pytest.raises(NotObservable):
                _ = context.clients
            assert gram.n == 5
            return torch.full((gram.n,), 1 / gram.n, dtype=torch.float64)

    setup = federation(Protocol(secure_aggregation={"groups": 5}), rounds=1)
    setup = setup.with_parts(pipeline=Pipeline((Nosy(),)), rule_sees=Sight.GROUP_SUMS)
    assert [report.abandoned for report in Server().run(setup)] == [None]


def test_colluders_cannot_tap_what_is_masked():
    for mode in ("full", {"groups": 5}):
        assert verdict("mean", mode, attack="alie").attack_sees == Sight.OWN_DATA
        assert "mimic needs the honest clients' updates" in verdict("mean", mode, attack="mimic").reasons[0]
    assert verdict("mean", "none", attack="alie").attack_sees == Sight.HONEST_UPDATES


# What colluders know of the rule


def known(protocol, pipeline, *, n=12, told=1):
    setup = federation(protocol, clients=n, pipeline=pipeline, told=told)
    order = tuple(range(n))
    return ColluderPipeline(setup, torch.zeros(setup.task.dim), 1, (), order[:-2], order[-2:])


def test_colluders_simulate_the_rule_on_means_of_groups():
    """One group is the mean; as many groups as updates is the rule itself; between, some partition of the updates."""
    updates = normal(12, 5)
    whole = known(FULL, "mean")(updates)
    assert torch.allclose(whole.double(), torch.tensor(mean(updates.tolist())).double(), atol=1e-6)
    single = known(Protocol(secure_aggregation={"groups": 12}), "median")(updates)
    assert single.tolist() == pytest.approx(median(updates.tolist(), 0), abs=1e-6)
    halves = known(Protocol(secure_aggregation={"groups": 2}), "median", told=0)(updates).double()
    total = updates.double().sum(0)
    partitions = itertools.combinations(range(12), 6)
    assert any(torch.allclose(halves, (updates[list(part)].double().mean(0) + (total - updates[list(part)].double().sum(0)) / 6) / 2, atol=1e-5) for part in partitions)  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "pipeline"),
    [(FullMasking(), "mean"), (FullMasking(), "weighted_mean")]
    + [(Groups(groups=5), rule) for rule in ("mean", "weighted_mean", "median", "krum", "nnm >> trimmed_mean")],
)
def test_probes_agree_with_the_rule_in_their_hands(mode, pipeline):
    rule = known(Protocol(secure_aggregation=mode.setting), pipeline)
    honest, direction = normal(10, 40), normal(1, 40, seed=1)
    coefficients = torch.zeros(2, 11, dtype=torch.float64)
    coefficients[:, :10], coefficients[:, 10] = 0.1, 3.0
    malicious = coefficients.float() @ torch.cat([honest, direction])
    answer = rule(torch.cat([honest, malicious])).double()
    probe = rule.probes(honest, direction, 2)(coefficients)
    center = honest.mean(0).double()
    assert probe.deviation == pytest.approx(float((answer - center).norm()), rel=1e-4)
    assert probe.progress == pytest.approx(float(answer @ center / center.square().sum()), rel=1e-4)


class Searcher(PoisonAttack):
    """Knows the rule and its own updates, and sends the multiple of their mean that moves the aggregate most."""

    name, needs = "searcher", (Sight.OWN_DATA | Sight.RULE,)

    def craft(self, view):
        probes = view.rule.probes(view.own, view.own[:0], view.f)
        row = torch.full((view.f, len(view.own)), 1 / len(view.own), dtype=torch.float64)
        best = max((-5.0, -1.0, 0.0, 2.0), key=lambda factor: probes(factor * row).deviation)
        assert best == -5.0
        return (best * view.own.mean(0)).expand(view.f, -1)


def test_an_attack_that_knows_the_rule_probes_it_on_its_own_updates():
    for mode in (FullMasking(), Groups(groups=3)):
        setup = federation(
            Protocol(secure_aggregation=mode.setting), clients=12, attack=Searcher(), malicious=(0, 1, 2), rounds=2
        )
        assert all(report.abandoned is None and len(report.malicious) == 3 for report in Server().run(setup))


def test_the_worst_case_runs_under_full_masks(tmp_path):
    attack = {"name": "worst_case", "selection_seeds": 1, "attacks": ["mimic", "sign_flip", "ipm(tau=10)", "fang"]}
    suite = {
        "clients": {"total": 10, "malicious": 2}, "training": {"rounds": 2}, "seeds": 1, "attack": attack,
        "protocol": {"secure_aggregation": "full"},
    }  # fmt: skip
    assert [str(member.attack) for member in lay_out(suite)[1].positions[0][1].members] == ["sign_flip", "ipm(tau=10)"]
    run = fg.run(suite, store=tmp_path, jobs=1)
    (record,) = (record for record in run.records.values() if "worst_case" in record["result"])
    assert record["result"]["worst_case"]["chosen"] in ("sign_flip", "ipm(tau=10)")
    assert record["result"]["secure_aggregation"]["survivors"] == 10
    assert "Secure aggregation, full: each update is hidden among 9 or more, colluders not counted" in text(
        render_terminal(OVERVIEW.blocks(run, {}))
    )


# Group testing


def test_the_posterior_is_that_of_all_sets_of_malicious_clients():
    draw, p = np.random.default_rng(0), 0.3
    for tests, clients in ((4, 6), (3, 8), (5, 5)):
        matrix, positive = draw.random((tests, clients)) < 0.5, draw.random(tests) < 0.5
        weight, malicious = 0.0, [0.0] * clients
        for guess in itertools.product((0, 1), repeat=clients):
            likely = math.prod(p if one else 1 - p for one in guess)
            for row, found in zip(matrix, positive, strict=True):
                spoilt = any(member and one for member, one in zip(row, guess, strict=True))
                likely *= (0.95 if found else 0.05) if spoilt else (0.05 if found else 0.95)
            weight += likely
            malicious = [total + likely * one for total, one in zip(malicious, guess, strict=True)]
        expected = [one / weight for one in malicious]
        assert decoding.posterior(matrix, positive, p).tolist() == pytest.approx(expected, rel=1e-10)
    assert decoding.posterior(matrix, positive, 0.0).tolist() == [0.0] * clients


def test_designs_are_even_and_of_constant_column_weight():
    for clients, tests, memberships in ((20, 10, 2), (15, 8, 3), (40, 12, 2)):
        matrix = decoding.design(clients, tests, memberships)
        assert set(matrix.sum(axis=0)) == {memberships}
        assert np.ptp(matrix.sum(axis=1)) <= 1
        assert len({tuple(column) for column in matrix.T}) == min(clients, math.comb(tests, memberships))


def test_how_few_clients_a_combination_of_sums_is_over():
    """Two overlapping sums of three differ in two clients; a sum of all and one without client 0 leave it bare."""
    smallest = decoding.smallest_combination
    assert smallest(np.eye(4, dtype=bool)) == 1
    assert smallest(np.ones((1, 7), bool)) == 7
    assert smallest(np.array([[1, 1, 1, 0], [0, 1, 1, 1]], bool)) == 2
    assert smallest(np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], bool)) == 3
    groups = decoding.design(20, 10, 2)
    assert smallest(groups) == 4
    assert smallest(np.vstack([groups, [[False] + [True] * 19]])) == 1
    assert smallest(groups, at_most=100) == 2  # certain, though not the most that can be said


def test_group_testing_finds_the_sign_flippers():
    protocol = Protocol(secure_aggregation={"group_testing": {"round": 2}})
    for malicious in ((3, 7), (5,)):
        setup = federation(protocol, partition="iid", root=100, attack="sign_flip", malicious=malicious, told=2)
        setup = setup.with_parts(attack_sees=Sight.OWN_DATA)
        reports = [*Server().run(setup)]
        assert [report.masked.sessions for report in reports] == [1, 10, 1, 1]
        assert [report.masked.anonymity for report in reports] == [18, 2, *[18 - len(malicious)] * 2]
        assert reports[0].excluded == ()
        assert set(reports[1].excluded) >= set(malicious)
        assert [report.excluded for report in reports[2:]] == [malicious] * 2
        assert set(reports[3].clients) == set(range(20))
        assert reports[3].behind == (tuple(sorted(set(range(20)) - set(malicious))),)
    nobody = [*Server().run(federation(protocol, partition="iid", root=100, told=2))]
    assert nobody[-1].excluded == ()


def test_group_testing_in_a_record():
    settings = {
        "clients": {"total": 20, "malicious": 2}, "server": {"root_data": 100}, "training": {"rounds": 3},
        "protocol": {"secure_aggregation": {"group_testing": {}}},
    }  # fmt: skip
    record, _ = run_trial(cell(**settings), 1, {})
    found = record["result"]["secure_aggregation"]["left_out"]
    assert 0 < found["hostile"] <= 2
    assert record["result"]["filter"]["recall"] > 0
    assert record["threat_card"]["protocol"]["anonymity"] == 2
    assert "group_testing scores groups on clean data" in cell(**{**settings, "server": {}}).verdict.reasons[0]
    assert "median needs each client's update" in cell(**settings, defense="median").verdict.reasons[0]
    tested = cell(**settings)
    assert tested.defended and tested.control(attacked=True, defended=False).masking == FullMasking()


def test_groups_that_could_be_combined_to_too_few_clients_are_refused():
    small = cell(
        clients={"total": 10, "malicious": 1}, server={"root_data": 50},
        protocol={"secure_aggregation": {"group_testing": {"tests": 9}}},
    )  # fmt: skip
    assert "combined into one over" in refusals([small], 0)[small.id]
    tested = {"secure_aggregation": {"group_testing": {}}, "dropout": {"rate": 0.1}}
    silent = cell(server={"root_data": 50}, protocol=tested)
    assert "a session of 4 clients keeps 3.6 on average, and needs 4" in refusals([silent], 0)[silent.id]


# Differential privacy


OWN = {"clip": 0.5, "noise_multiplier": 2.0}
NOISE = {"kind": "distributed", **OWN}


@pytest.mark.parametrize("mechanism", ["skellam", "discrete_gaussian"])
def test_the_noise_of_the_sum_is_as_strong_as_said(mechanism):
    """18 of 20 do not collude and share it out: all 20 together have z C sqrt(20 / 18)."""
    protocol = dataclasses.replace(FULL, privacy=DistributedNoise(**OWN, mechanism=mechanism).setting)
    setup = federation(protocol)
    wire, updates = random_round(setup, scale=0.001)
    row = receiver(setup).receive(wire).rows[0].double()
    noise = 20 * (row - updates.mean(0))
    expected = 2.0 * 0.5 * math.sqrt(20 / 18)
    assert float(noise.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(noise)))
    assert abs(float(noise.mean())) < 4 * expected / math.sqrt(len(noise))


def test_a_run_with_noise_has_an_epsilon():
    """Close to that of the Gaussian mechanism, z = 2 and three rounds; dropped clients' noise is charged for."""
    noisy = {"secure_aggregation": "full", "privacy": NOISE}
    record, _ = run_trial(cell(protocol=noisy), 0, {})
    privacy, card = record["result"]["privacy"], record["threat_card"]
    # RDP of three Gaussian releases, a / (2 z^2) each, at the best of many orders
    gaussian = min(
        3 * a / 8 + math.log((a - 1) / a) - (math.log(1e-5) + math.log(a)) / (a - 1) for a in np.arange(1.1, 60, 0.1)
    )
    assert privacy["epsilon"] == pytest.approx(gaussian, rel=0.03)
    assert [privacy[key] for key in ("unit", "rounds", "contributors", "may_withhold")] == ["client", 3, 16, 4]
    assert card["epsilon"] == privacy["epsilon"]
    assert "hostile_noise_counted" not in [flag["flag"] for flag in record["flags"]]
    silent = {**noisy, "dropout": {"rate": 0.2}}
    fewer, _ = run_trial(cell(protocol=silent, attack="none", training={"rounds": 1}), 0, {})
    assert fewer["result"]["privacy"]["contributors"] < 18
    many, _ = run_trial(cell(protocol=noisy, clients={"total": 20, "malicious": 4}, training={"rounds": 1}), 0, {})
    assert many["result"]["privacy"]["contributors"] == 14  # two may collude, and four others add none
    assert "hostile_noise_counted" not in [flag["flag"] for flag in many["flags"]]


def test_a_round_with_too_little_noise_has_no_sum():
    """With epsilon what 17 contributors spend, a round with fewer than 19 survivors is aborted: 2 may withhold their noise."""
    loose = {"secure_aggregation": "full", "privacy": NOISE, "dropout": {"rate": 0.05}}
    settings = {"attack": "none", "training": {"rounds": 3}}
    without, _ = run_trial(cell(protocol=loose, **settings), 0, {})
    plan, scale = DistributedDP(clip=0.5, noise_multiplier=2.0, delta=1e-5), (2**19 - 1) / 0.5
    target = plan.account_rounds([17] * 3, expected=17, dim=650, scale=scale).value * 1.0001
    assert without["result"]["privacy"]["epsilon"] > target
    bounded = {**loose, "privacy": {**NOISE, "epsilon": target}}
    record, _ = run_trial(cell(protocol=bounded, **settings), 0, {})
    sums, privacy = record["result"]["secure_aggregation"], record["result"]["privacy"]
    assert 0 < sums["aborted_sessions"] < 3 and privacy["rounds"] == 3 - sums["aborted_sessions"]
    assert privacy["contributors"] == 17 and privacy["epsilon"] <= target
    out_of_reach = cell(protocol={**loose, "privacy": {**NOISE, "epsilon": 0.9 * target}}, **settings)
    assert "Raise noise_multiplier or epsilon" in refusals([out_of_reach], 0)[out_of_reach.id]


def test_malicious_clients_and_colluders_are_not_taken_for_the_same():
    """2 may collude, 3 others are malicious: of 20, 15 surely add noise; with max instead of the union it would be 17."""
    protocol = dataclasses.replace(FULL, privacy=DistributedNoise(**OWN).setting)
    setup = dataclasses.replace(federation(protocol), malicious=frozenset({4, 5, 6})).with_parts(attacking=3)
    wire, _ = random_round(setup, malicious=(4, 5, 6), scale=0.001)
    assert receiver(setup).receive(wire).masked.contributors == 15


def test_a_bound_holds_beside_malicious_clients():
    """Noise is shared out among 15, and a round with fewer than 15 + 2 + 2 survivors is aborted."""
    protocol = {"secure_aggregation": "full", "privacy": NOISE, "dropout": {"rate": 0.05}}
    plan, scale = DistributedDP(clip=0.5, noise_multiplier=2.0, delta=1e-5), (2**19 - 1) / 0.5
    target = plan.account_rounds([15] * 3, expected=15, dim=650, scale=scale).value * 1.0001
    bounded = {**protocol, "privacy": {**NOISE, "epsilon": target}}
    record, _ = run_trial(cell(protocol=bounded, training={"rounds": 3}), 0, {})
    sums, privacy = record["result"]["secure_aggregation"], record["result"]["privacy"]
    assert privacy["may_withhold"] == 4 and privacy["most_hostile"] == 2 and privacy["expected_contributors"] == 15
    assert 0 < sums["aborted_sessions"] < 3 and privacy["rounds"] == 3 - sums["aborted_sessions"]
    assert privacy["contributors"] >= 15 and privacy["epsilon"] <= target


# Settings


@pytest.mark.parametrize(
    ("protocol", "others", "message"),
    [
        ({"encoding": {"bits": 29}}, {}, "Lower bits to 27, or lower the number of clients to 7, or set ring: 64."),
        ({"secure_aggregation": {"groups": 4}, "encoding": {"bits": 31}}, {}, "the sum of 5 clients may reach"),
        ({"dropout": {"rate": 0.5}}, {}, "12 of 20 clients must survive; got dropout = 0.5, 10 clients"),
        ({"colluding": 0.95}, {}, "At least two clients must be honest"),
        ({}, {"clients": {"total": 2}}, "needs at least 3 clients"),
        ({"secure_aggregation": {"groups": 7}}, {}, "7 groups of 20 clients have 2, of whom 2 may collude with the server; expected at least 4 in each. Take at most 5 groups"),
        ({"secure_aggregation": {"groups": 5}, "dropout": {"rate": 0.1}}, {}, "a session of 4 clients keeps 3.6 on average, and needs 4"),
        ({"secure_aggregation": {"groups": 3, "redraw": False}}, {"clients": {"total": 20, "per_round": 0.5}}, "Set redraw: true, or clients.per_round: 1.0."),
        ({"secure_aggregation": {"group_testing": {}}}, {"clients": {"total": 30, "per_round": 20}}, "each client is tested once"),
        ({"secure_aggregation": {"group_testing": {"round": 9}}}, {}, "round: expected at most training.rounds = 3; got 9."),
        ({"secure_aggregation": {"group_testing": {"tests": 3, "memberships": 3}}}, {}, "memberships: expected fewer than tests = 3"),
        ({"secure_aggregation": {"group_testing": {}}, "privacy": NOISE}, {}, "a test shows several sums over each client"),
        ({"secure_aggregation": "none", "privacy": NOISE}, {}, "privacy: distributed noise is added under masks, and secure_aggregation is off"),
        ({"secure_aggregation": "none", "norm_bound": 1.0}, {}, "Use the defense clip(bound=...) >> mean."),
        ({"secure_aggregation": {"groups": 5}, "colluding": 0.1, "privacy": {**NOISE, "noise_multiplier": 1e9}}, {}, "Lower the encoding's bits"),
        ({"encoding": {"bits": 28}, "privacy": {**NOISE, "noise_multiplier": 8.0}}, {}, "noise"),
    ],
)  # fmt: skip
def test_protocols_that_cannot_keep_their_promise_are_errors(protocol, others, message):
    with pytest.raises(ConfigError) as caught:
        cell(protocol={"secure_aggregation": "full", **protocol}, **{"attack": "none", **others})
    assert str(caught.value).startswith("protocol: ")
    assert message in str(caught.value)
    assert isinstance(caught.value, OverflowBudgetError) == ("ring" in str(caught.value))


def test_noise_for_clients_that_count_alike_forbids_weights():
    noisy = {"secure_aggregation": "full", "privacy": NOISE}
    assert "weighted_mean weighs them. Use mean" in cell(protocol=noisy, defense="weighted_mean").verdict.reasons[0]
    assert cell(protocol=noisy).verdict.reasons == ()


def test_what_only_the_data_tell_is_refused_before_anything_runs():
    """Noise is bounded over all coordinates, and how many there are is known once the model is built.

    100 inputs of 2^24 leave 4.7e8 of 2^31. With L = log(2 d 2^40) the noise takes up to sqrt(200 L) z 2^24 / sqrt(90):
    z 1.3e8 for d = 1, z 1.5e8 for d = 650.
    """

    def noisy(multiplier):
        privacy = {**NOISE, "noise_multiplier": multiplier}
        protocol = {"secure_aggregation": "full", "encoding": {"bits": 25}, "privacy": privacy}
        return cell(protocol=protocol, clients={"total": 100}, attack="none")

    fits, spills = noisy(3.1), noisy(3.35)
    assert refusals([fits], 0) == {}
    assert "expected at most 2147483647 in a ring of 32 bits" in refusals([spills], 0)[spills.id]
    with pytest.raises(OverflowBudgetError):
        noisy(3.7)


def test_settings_without_effect_do_not_split_identities():
    def same(one, other):
        return cell(protocol=one).id == cell(protocol=other).id

    off, full = {"secure_aggregation": "none"}, {"secure_aggregation": "full"}
    assert cell().canonical["protocol"] == {"secure_aggregation": "off", "privacy": "none"}
    for change in ({"colluding": 0.3}, {"encoding": {"bits": 9}}, {"dropout": {"at": "unmask"}}, {"dropout": {"rate": 0.1, "at": "unmask"}}):  # fmt: skip
        assert same(off, {**off, **change}), change
    early = {**off, "dropout": {"rate": 0.1, "at": "advertise_keys"}}
    assert same(early, {**off, "dropout": {"rate": 0.1}}) and not same(early, off)
    assert same(full, {**full, "dropout": {"at": "unmask"}})
    changes = (
        {"colluding": 0.2}, {"encoding": {"bits": 9}}, {"encoding": {"rotate": True}}, {"norm_bound": 1.0}, {"privacy": NOISE},
        {"dropout": {"rate": 0.1}}, {"dropout": {"rate": 0.1, "at": "unmask"}}, {"secure_aggregation": {"groups": 4}},
        {"secure_aggregation": {"groups": 4, "redraw": False}}, off,
    )  # fmt: skip
    ids = [cell(protocol={**full, **change}).id for change in ({}, *changes)]
    assert len(set(ids)) == len(ids)
    noisy = {**full, "privacy": NOISE}
    assert same(noisy, {**noisy, "encoding": {"clip": 9.0}})  # the noise's clip counts
    for protocol in ({**full, **change} for change in changes):
        built = cell(protocol=protocol)
        assert build_cell(CellConfig.model_validate(built.canonical), load_registry()).id == built.id


def test_what_a_cell_is_compared_with_can_be_built_again_from_its_settings():
    for mode in ("none", "full", {"groups": 4, "redraw": False}, {"group_testing": {"tests": 8}}):
        bound = {} if mode == "none" else {"norm_bound": 1.0}
        one = cell(server={"root_data": 50}, protocol={"secure_aggregation": mode, **bound})
        assert one.defended is (mode != "none")
        for other in one.compared_with.values():
            assert build_cell(other.config, load_registry()).canonical == other.canonical
            assert other.masking in (one.masking, one.masking.undefended, FullMasking())
        undefended = one.control(attacked=True, defended=False)
        assert undefended.protocol.norm_bound is None and not undefended.defended


# Records


def test_one_seed_gives_one_record_though_the_keys_differ():
    for protocol in (
        {"secure_aggregation": "full", "dropout": {"rate": 0.1}, "privacy": NOISE, "encoding": {"rotate": True}},
        {"secure_aggregation": {"groups": 3}},
    ):
        small = {"clients": {"total": 12, "malicious": 2}, "training": {"rounds": 2}, "protocol": protocol}
        first, second = (run_trial(cell(**small), 5, {})[0] for _ in range(2))
        assert reproducible(first) == reproducible(second)
    alone = cell(**small).compared_with["silent_mean"]
    assert alone.masking == FullMasking()
    assert (
        run_trial(alone, 5, {})[0]["result"]["final_accuracy"] > 0.4
    )  # 10 clients could not be dealt into groups of four
    assert reproducible(first) != reproducible(run_trial(cell(**small), 6, {})[0])


def test_what_a_record_says_of_the_sums():
    masked = cell(protocol={"secure_aggregation": "full", "dropout": {"rate": 0.1}})
    record, _ = run_trial(masked, 0, {})
    found, card = record["result"]["secure_aggregation"], record["threat_card"]
    assert found["sessions"] == 3 and found["aborted_rounds"] == found["aborted_sessions"] == 0
    assert 15 < found["survivors"] < 20
    assert found["survivors"] * 3 + record["result"]["rounds"]["silent"] == 60
    assert found["anonymity"] == min(found["anonymity"], 18) >= 10
    assert 0 < found["error"]["mean"] <= found["error"]["max"] < 1e-3
    assert found["left_out"] == {"hostile": 0, "honest": 0}
    assert record["cost"]["protocol_bytes_sent"] == pytest.approx(60 * found["bytes_up"])
    assert found["bytes_up"] > 0.8 * 4 * 651  # a masked input holds one number more than the model
    # Complete graph, A = 2: T_sig = floor((20 + 2) / 2) + 1.
    assert card["protocol"]["session"] == {
        "clients": 20,
        "neighbors": 19,
        "threshold": 11,
        "quorum": 12,
        "survivors": 12,
    }
    assert (found["mode"], found["rounds"], found["parameters"]) == ("full", 3, card["protocol"]["session"])
    assert card["protocol"]["kept_by_protocol"] == 11 - 2 + 1  # t - A + 1
    assert card["rows"] == 1 and "each_update" not in card["server_shown"]
    assert "one sum of all updates" in card["protocol"]["in_words"]
    assert card["epsilon"] is None and "secure aggregation alone has no epsilon" in card["epsilon_note"]
    plain, _ = run_trial(cell(), 0, {})
    assert plain["result"]["secure_aggregation"] is None and plain["threat_card"]["protocol"] is None
    assert plain["cost"]["protocol_bytes_sent"] == 0


def test_check_says_who_is_hidden_among_how_many():
    suite = {
        "clients": {"total": 12, "malicious": 2}, "training": {"rounds": 2}, "seeds": 1,
        "matrix": {"protocol.secure_aggregation": ["full", {"groups": 4}], "defense": ["mean", "krum"]},
    }  # fmt: skip
    laid = lay_out(suite)[1]
    refused = explain_refusals(laid)
    said = text(render_plan(laid, refused))
    assert "Secure aggregation, full: The server sees one sum" in said
    assert "Hidden among 11: the smallest sum, less the 1 that may collude" in said
    assert "Hidden among 2: the smallest sum" in said
    assert "krum needs each client's update" in said
    assert estimate(laid, refused, 1).seconds > 0


def text(rendered) -> str:
    console = Console(width=1000)
    with console.capture() as capture:
        console.print(rendered)
    return capture.get()


def test_participation_that_leaves_too_few_for_a_session_loses_the_round():
    setup = federation(FULL, clients=10, rounds=15)
    setup = setup.with_parts(clients=Participation(total=10, per_round=4, sampling="poisson"))
    reports = [*Server().run(setup)]
    for report in reports:
        chosen = setup.cell.clients.choose(setup.rng.child("participation", report.round), report.round)
        assert (report.abandoned is None) == (len(chosen) >= 3)
    assert any(report.abandoned for report in reports)


def test_the_threat_in_words_leaves_out_what_masks_hide():
    plain, masked = cell(protocol={}), cell(protocol={"secure_aggregation": "full"})
    assert "the honest clients' updates" in threat_card(plain)["in_words"]
    assert "the honest clients' updates" not in threat_card(masked)["in_words"]
    assert "the malicious clients' own data" in threat_card(masked)["in_words"]
    assert "honest_updates" in threat_card(masked)["granted"]  # what the suite grants is told as it stands
