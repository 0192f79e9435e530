"""Suites with `training.adapters`: identity, what is refused, what `check` says, and trials."""

from __future__ import annotations

import sys

import pytest

from fedguard.adapters import FORMS
from fedguard.api import lay_out
from fedguard.bench.running import check as checks
from fedguard.bench.running.check import describe_network
from fedguard.bench.running.replay import why_no_replay
from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.errors import ConfigError
from tests.root import ROOT

BENCH = Workbench()


def suite(form="factors", more=(), **settings):
    return {
        "task": {"data": "wine", "model": "mlp(hidden=[16])"},
        "clients": {"total": 5, "malicious": 1},
        "training": {"rounds": 6, "batch_size": 8, "lr": 0.3, "adapters": {"form": form, "rank": 2}, **dict(more)},
        "seeds": 1,
        **settings,
    }


def only(given):
    """The attacked cell of a suite of one, or the only one."""
    plan = lay_out(given)[1]
    return plan.positions[-1][1]


def record_of(given):
    record, model = run_trial(only(given), 0, {}, BENCH)
    return record["result"], model


def test_adapters_are_part_of_the_identity_only_where_there_are_any():
    plain = suite()
    del plain["training"]["adapters"]
    assert "adapters" not in only(plain).canonical["training"]
    ids = {only(suite(form)).id for form in FORMS} | {only(plain).id}
    assert len(ids) == len(FORMS) + 1
    cell = only(suite("product"))
    assert cell.canonical["training"]["adapters"] == {
        "name": "product", "rank": 2, "alpha": None, "targets": [], "names": ["lora_A", "lora_B"],
    }  # fmt: skip
    assert cell.canonical["task"]["model"] == {"name": "mlp", "hidden": [16]}


def test_the_form_is_swept_by_its_word():
    plan = lay_out(suite(matrix={"training.adapters.form": ["factors", "frozen_a"]}))[1]
    assert [cell.canonical["training"]["adapters"]["name"] for _, cell in plan.positions] == ["factors", "frozen_a"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"defense": "sign_guard"}, "sign_guard reads all updates as one matrix"),
        ({"defense": "lasa"}, "lasa reads all updates as one matrix"),
        ({"defense": "centered_clipping"}, "centered_clipping compares updates with a vector of coordinates"),
        ({"more": {"server_momentum": 0.5}}, "a server's step would move the factors"),
        ({"more": {"algorithm": "fedsgd", "lr": 0.1}}, "a server's step would move the factors"),
        ({"more": {"worker_momentum": 0.9}}, "training.worker_momentum keeps vectors from round to round"),
        ({"more": {"algorithm": "scaffold", "local_steps": 4}}, "scaffold keeps vectors from round to round"),
        ({"architecture": "all_reduce"}, "all_reduce aggregates in another way"),
        ({"protocol": {"secure_aggregation": "full"}}, "under masks the server sums up what clients send"),
        ({"attack": "opt_ipm"}, "opt_ipm tries the server's rule on vectors of coordinates"),
    ],
)
def test_where_products_cannot_be_aggregated_the_reason_is_said(settings, said):
    cell = only(suite("product", settings.pop("more", ()), **settings))
    assert any(said in reason for reason in cell.verdict.reasons), cell.verdict.reasons
    other = only(suite("frozen_a", (), **settings))
    assert not any(said in reason for reason in other.verdict.reasons)


def test_actors_and_replays_say_why_not():
    acting = only(
        suite(task={"data": "cartpole", "model": "mlp"}, more={"algorithm": "actor_critic", "batch_size": None})
    )
    assert any("training.adapters is for tasks with examples" in reason for reason in acting.verdict.reasons)
    assert "the rule sees products of factors" in str(why_no_replay(only(suite("product"))))
    assert why_no_replay(only(suite("factors"))) is None


def test_check_tells_how_many_adapters_were_found(monkeypatch):
    (said,) = describe_network(only(suite("frozen_a")))
    assert said.startswith(
        "Adapters: 1 pair of factors of rank 2; 83 parameters are trained and sent, 250 are frozen. frozen_a: "
    )
    monkeypatch.setattr(checks, "TOLD", 1)
    _, memory = describe_network(only(suite("factors", defense="foolsgold", attack="min_max")))
    assert memory.startswith(
        "Memory: foolsgold and min_max hold all updates of a round as one matrix, 5 x 109 numbers: "
    )
    assert list(describe_network(only(suite("factors", defense="krum"))))[1:] == []


def test_an_unknown_form_is_named():
    with pytest.raises(ConfigError, match=r"training\.adapters"):
        lay_out(suite("products"))


def test_a_gauge_ruins_the_mean_of_factors_and_changes_no_mean_of_products():
    found = {}
    for form in ("factors", "product", "stacked"):
        for c in (1.0, 300.0):
            result, _ = record_of(suite(form, attack=f"gauge(c={c})"))
            found[form, c] = result["final_accuracy"], result["aggregate"].get("factor_bias")
    assert found["product", 300.0][0] == pytest.approx(found["product", 1.0][0], abs=0.03)
    assert found["stacked", 300.0][0] == pytest.approx(found["stacked", 1.0][0], abs=0.03)
    assert found["stacked", 1.0][0] > 0.5
    assert found["factors", 300.0][0] < found["factors", 1.0][0] - 0.2, found
    assert found["factors", 300.0][1] > 10 * found["factors", 1.0][1] > 0
    assert found["product", 1.0][1] is None


@pytest.mark.parametrize("defense", ["krum", "median", "nnm >> trimmed_mean"])
def test_robust_rules_run_on_products(defense):
    result, model = record_of(suite("product", attack="ipm(tau=5)", defense=defense))
    assert len(model) == 2 * (13 + 16) + 3 * 16 + 3
    assert result["rounds"]["abandoned"] == 0 and result["final_accuracy"] > 0.4


def test_a_network_of_ones_own_brings_its_adapters(monkeypatch):
    """Its factors have names of their own; nothing else about it is said."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    task = {"data": "own_tokens:reviews", "model": "own_tokens:network"}
    given = suite(task=task, attack="gauge(c=100.0)")
    given["training"] |= {"rounds": 1, "adapters": {"form": "product", "names": ["down", "up"]}}
    (said,) = describe_network(only(given))
    assert said.startswith(
        "Adapters: 2 pairs of factors of rank 4; 578 parameters are trained and sent, 3968 are frozen."
    )
    result, model = record_of(given)
    assert len(model) == 578 and result["rounds"]["abandoned"] == 0
    sys.modules.pop("own_tokens", None)
