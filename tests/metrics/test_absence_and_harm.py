"""What is lost under an attack is told apart: the malicious clients' data that are absent, and what they send instead."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import fedguard as fg
from fedguard.api import lay_out
from fedguard.bench.flags.lint import lint
from fedguard.bench.flags.results import results_of
from fedguard.bench.pages.cell_scores import CellScores
from fedguard.bench.pages.matrix import heatmaps
from fedguard.bench.pages.trained import references
from fedguard.bench.records.record import reproducible, to_text
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.trial import run_trial, set_up
from fedguard.bench.running.workbench import Workbench, _key, malicious_clients
from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import PoisonAttack, Sight
from fedguard.metrics.figures import DIFFERENCE
from fedguard.metrics.stats import estimate
from fedguard.registry import load_registry

CLASSES = 5


def blobs():
    """Five classes far apart, of 40 examples each, so that a client of `label_sorted` owns a class."""
    draw, y = np.random.default_rng(0), np.repeat(np.arange(CLASSES), 40)
    return np.eye(CLASSES)[y] * 4 + draw.normal(size=(len(y), CLASSES)) * 0.3, y


BLOBS = {
    "task": {"data": {"name": "function", "target": f"{__name__}:blobs"}, "partition": "label_sorted"},
    "clients": {"total": CLASSES, "malicious": 1},
    "training": {"rounds": 12, "lr": 0.5},
}


@dataclass(frozen=True, kw_only=True)
class Honest(PoisonAttack):
    """Sends what honest training gives: no attack at all."""

    name = "honest"
    needs = (Sight.OWN_DATA,)


def cell(base=BLOBS, **settings) -> PlannedCell:
    return build_cell(CellConfig.model_validate({**base, **settings}), load_registry())


FINALS: dict = {}


def final(one: PlannedCell, seed: int) -> float:
    if (one.id, seed) not in FINALS:
        FINALS[one.id, seed] = run_trial(one, seed, {})[0]["result"]["final_accuracy"]
    return FINALS[one.id, seed]


def result_of(one: PlannedCell, seed: int) -> dict:
    """What a record says of a cell, with all that it is compared with."""
    controls = {name: final(other, seed) for name, other in one.compared_with.items() if other.id != one.id}
    return run_trial(one, seed, controls)[0]["result"]


def test_absence_and_harm_add_up_to_the_drop():
    for attack, defense in (("ipm(tau=5)", "mean"), ("sign_flip", "median"), ("dropout", "mean")):
        result = result_of(cell(attack=attack, defense=defense), 0)
        controls = result["controls"]
        assert result["absence"] == controls["clean_defense"] - controls["silent_defense"]
        assert result["harm"] == controls["silent_defense"] - controls["attack_defense"]
        assert result["absence"] + result["harm"] == pytest.approx(result["accuracy_drop"], abs=1e-12)


def test_the_harm_of_no_attack_is_nothing_where_all_clients_hold_the_same():
    """Six federations of IID clients under the mean: the interval of the paired differences holds 0, and is narrow."""
    iid = {
        "task": {"data": "digits", "partition": "iid"},
        "clients": {"total": 10, "malicious": 2},
        "training": {"rounds": 15},
    }
    harms = []
    for seed in range(6):
        one = cell(iid, attack="sign_flip").with_parts(attack=Honest())
        result = result_of(one, seed)
        assert result["accuracy_drop"] == pytest.approx(0, abs=0.003)  # the clean training, in another order of sums
        harms.append(result["harm"])
    found = estimate(harms)
    assert abs(found.mean) <= found.half_width < 0.02


def test_where_colluders_own_a_class_its_loss_is_absence_and_silence_does_no_harm():
    """Of five classes one has a single owner; without it the mean never learns it, and is right on the four others."""
    for seed in range(3):
        for attack in (
            "dropout",
            "nan",
        ):  # the server drops what is no number: for the mean, the malicious clients are silent
            result = result_of(cell(attack=attack), seed)
            assert result["controls"]["clean_mean"] == 1
            assert result["absence"] == pytest.approx(1 / CLASSES, abs=1e-9)
            assert result["harm"] == 0
        result = result_of(cell(attack="ipm(tau=20)"), seed)
        assert result["absence"] == pytest.approx(1 / CLASSES, abs=1e-9)
        assert result["harm"] > 0.3


def test_dealt_among_the_honest_nothing_is_absent():
    for seed in range(3):
        task = {**BLOBS["task"], "partition_among": "honest"}
        result = result_of(cell(task=task, attack="ipm(tau=20)"), seed)
        assert result["controls"]["clean_mean"] == 1
        assert result["absence"] == pytest.approx(0, abs=0.03)
        assert result["harm"] > 0.5


def test_malicious_clients_copy_where_the_honest_have_everything():
    for number in (0, 2, 4):
        task = {"data": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}, "partition_among": "honest"}
        one = cell({}, task=task, clients={"total": 7, "malicious": number}, attack="sign_flip" if number else "none")
        dealt, malicious = Workbench().task(one, 3), malicious_clients(one, 3)
        honest = [client for client in range(7) if client not in malicious]
        owned = torch.cat([dealt.examples(client).x for client in honest]).flatten(1)
        assert len(owned) == len(dealt.dataset.train)
        order = [
            rows.flatten(1).double() @ torch.arange(64.0).double()
            for rows in (dealt.dataset.train.x, owned.view(-1, 1, 8, 8))
        ]
        assert torch.equal(*(one.sort().values for one in order))
        copied = [
            next(k for k in honest if torch.equal(dealt.examples(k).x, dealt.examples(j).x)) for j in sorted(malicious)
        ]
        assert len(set(copied)) == min(len(malicious), len(honest))  # no one twice before all
        pool = set_up(one, 3, dealt).pool if number else ()
        assert all(torch.equal(mine.x, dealt.examples(k).x) for mine, k in zip(pool, copied, strict=True))
        says = threat_card(one)["attacker_data"]
        assert says is None if not number else says.startswith("copies of honest clients' shares")


def test_the_identity_of_cells_dealt_among_the_honest():
    among = {**BLOBS["task"], "partition_among": "honest"}
    clean = cell(task=among)
    assert clean.id != cell().id  # who is malicious decides who holds what, attack or not
    assert clean.id != cell(task=among, clients={"total": CLASSES, "malicious": 2}).id
    assert cell().id == cell(clients={"total": CLASSES, "malicious": 2}, attack="none").id or cell().assumed_f != 2
    nobody = {"total": CLASSES}
    assert cell(task=among, clients=nobody).id == cell(clients=nobody).id
    for one in (clean, cell(task=among, attack="sign_flip"), cell(task=among, attack="sign_flip").silenced):
        built = build_cell(CellConfig.model_validate(one.canonical), load_registry())
        assert (built.id, _key(built, 1)) == (one.id, _key(one, 1))


def test_no_epsilon_for_examples_that_two_clients_hold():
    noise = {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-4, "sample_rate": 0.2}
    training = {"rounds": 2, "batch_size": 8}
    task = {**BLOBS["task"], "partition_among": "honest"}
    settings = {"protocol": {"privacy": noise}, "training": training, "attack": "sign_flip"}
    assert not any("partition_among" in reason for reason in cell(**settings).verdict.reasons)
    assert any(
        "a malicious client holds a copy of it" in reason for reason in cell(task=task, **settings).verdict.reasons
    )


# The cells of silent malicious clients


def test_all_attacks_share_the_silent_cells_of_a_defense():
    suite = {
        **BLOBS,
        "matrix": {
            "threat.knowledge": [["honest_updates", "own_data", "model", "defense"], ["own_data"]],
            "attack": ["none", "sign_flip", "label_flip", "zeros"],
            "defense": ["mean", "median"],
        },
    }
    _, plan = lay_out(suite)
    silent = [one for one in plan.controls if one.attack]
    assert sorted(one.label for one in silent) == ["dropout against mean", "dropout against median"]
    for one in silent:
        assert one.silenced.id == one.id
        assert build_cell(CellConfig.model_validate(one.canonical), load_registry()).id == one.id
        assert one.assumed_f == 1
    windows = [cell(attack="sign_flip", threat=threat).silenced.id for threat in ({}, {"first_round": 3}, {"every": 2})]
    assert len(set(windows)) == 3  # they are silent when the attack would act, and honest else


@pytest.mark.parametrize(
    ("rule", "total", "malicious", "told", "expected"),
    [
        ("trimmed_mean", 20, 4, 4, 4),  # 16 rows, of which ceil(4 * 16 / 20) = 4 are cut on each side
        ("trimmed_mean", 21, 10, 9, 5),  # of 11 rows ceil(10 * 11 / 21) = 6 would leave none: 9 are told, hence 5
        ("bulyan", 11, 2, 1, 1),  # 9 rows are too few for ceil(2 * 9 / 11) = 2 by n >= 4f + 3, and enough for 1
        ("mean", 5, 2, 2, 2),
    ],
)
def test_the_rule_is_told_the_share_or_the_most_that_it_stands(rule, total, malicious, told, expected):
    task = {"data": "digits", "partition": "iid"}
    one = cell({}, task=task, clients={"total": total, "malicious": malicious}, training={"rounds": 2}, defense=rule,
               attack="sign_flip")  # fmt: skip
    assert one.silenced.assumed_f == told
    rounds = run_trial(one.silenced, 0, {})[0]["result"]["rounds"]
    assert (rounds["abandoned"], rounds["updates"]) == (0, 2 * (total - malicious))
    setup = set_up(one.silenced, 0, Workbench().task(one.silenced, 0))
    assert {report.assumed_f for report in one.architecture.run(setup)} == {expected}
    assert not {flag["flag"] for flag in run_trial(one.silenced, 0, {})[0]["flags"]} & {"wrong_assumed_f", "outvoted"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Among its cells sums of groups that do not come about where one of nine clients is silent."""
    suite = {
        "name": "split",
        "task": {"partition": "label_sorted"},
        "clients": {"total": 9, "malicious": 1},
        "training": {"rounds": 1},
        "seeds": 3,
        "matrix": {
            "protocol.secure_aggregation": ["none", {"groups": 3}],
            "attack": ["none", "ipm(tau=5)"],
            "defense": ["mean", "median"],
        },
    }
    return fg.run(suite, store=tmp_path_factory.mktemp("store"), jobs=1), suite


def test_silence_that_stops_the_training_is_no_measure(run):
    """Eight clients in three groups: one has two, too few for a session. The mean needs no groups: its sum is one of all."""
    said = {(row["protocol.secure_aggregation"], row["defense"], row["attack"] != "none"): row for row in run[0].rows()}
    for defense in ("mean", "median"):
        clear, none = said["none", defense, True], said["none", defense, False]
        assert clear["absence"] + clear["harm"] == pytest.approx(clear["accuracy_drop"])
        assert (none["absence"], none["harm"]) == (None, None)
    grouped = {defense: row for (protocol, defense, attacked), row in said.items() if attacked and protocol != "none"}
    assert grouped["mean"]["harm"] is not None
    assert (grouped["median"]["absence"], grouped["median"]["harm"]) == (None, None)
    assert grouped["median"]["accuracy_drop"] is not None


def test_silent_cells_are_stored_and_resumed_like_others(run, tmp_path):
    stored, suite = run
    silent = {trial: record for trial, record in stored.records.items() if record["threat_card"]["attack"] == "dropout"}
    assert len(silent) == 4 * 3
    before = {trial: reproducible(record) for trial, record in stored.records.items()}
    for cell_id, seed in silent:
        stored.folder.record_path(cell_id, seed).unlink()
    again = fg.run(suite, store=stored.folder.path.parent, jobs=1)
    assert {trial: reproducible(record) for trial, record in again.records.items()} == before


def test_the_figures_are_shown_with_paired_intervals(run):
    table = run[0].table("harm").blocks["protocol.secure_aggregation = none"]["ipm(tau=5)"]
    for defense in ("mean", "median"):
        harms = [
            r["harm"] for r in run[0].rows() if (r["protocol.secure_aggregation"], r["defense"]) == ("none", defense)
        ]
        assert table[defense].estimate == estimate([harm for harm in harms if harm is not None], DIFFERENCE)
    assert any("lost to what the malicious clients send" in one.title for one in heatmaps(run[0], "report"))


def test_records_of_yesterday_stay_readable(run, tmp_path):
    """Without silent controls and the split; the mean of the honest alone stood among the references."""
    folder = tmp_path / "old"
    folder.mkdir()
    for path in run[0].folder.path.rglob("*.json"):
        body, there = json.loads(path.read_text()), folder / path.relative_to(run[0].folder.path)
        if result := body.get("result"):
            result["references"]["oracle_mean"] = result["controls"].pop("silent_mean")
            for place, name in ((result["controls"], "silent_defense"), (result, "absence"), (result, "harm")):
                place.pop(name)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(to_text(body) if "sha256" in body else json.dumps(body).encode())
    old = fg.open_run(folder)
    assert not old.broken
    assert {(row["absence"], row["harm"]) for row in old.rows()} == {(None, None)}
    assert all(row["accuracy_drop"] is not None for row in old.rows() if row["attack"] != "none")
    attacked = [record for record in old.records.values() if record["label"] == "ipm(tau=5) against median"]
    then = CellScores(sorted(attacked, key=lambda record: record["seed"]))
    assert then.of("silent_defense") is None and then.of("silent_mean") is not None
    now = [record for record in run[0].records.values() if record["label"] == "ipm(tau=5) against median"]
    assert then.of("silent_mean") == CellScores(sorted(now, key=lambda record: record["seed"])).of("silent_mean")
    assert "mostly_absence" in {one.flag for one in lint(results_of(old)).not_judged}
    assert "chance" in references(old)
