"""Servers of Google's system that fail: an Aggregator loses its devices only, a Coordinator the round and not the model."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from fedguard.contracts import Fate
from tests.systems.scenes import cell, models, reports, scene

TWENTY: dict[str, Any] = {"clients": {"total": 20}, "training": {"rounds": 12, "batch_size": 32}}


def run(spec: str, rounds: int = 12, **settings: Any) -> list[Any]:
    training = {"rounds": rounds, "batch_size": 32, "lr": 0.1}
    given: dict[str, Any] = {
        "clients": {"total": 20},
        "training": training,
        "evaluation": {"every": rounds},
        **settings,
    }
    return list(reports(f"google(over=1, {spec})", **given))


def test_a_failed_aggregator_loses_its_devices_and_no_others():
    found = run("aggregators=5, aggregator_fails=0.3, least=0.01", 60)
    assert {len(one.of_fate(Fate.LOST)) for one in found} <= {0, 4, 8, 12, 16, 20}
    for one in found:
        assert sorted((*one.clients, *one.of_fate(Fate.LOST))) == list(range(20))
        assert {span.client for span in one.moment.trainings if span.fate == "lost"} == set(one.of_fate(Fate.LOST))
    failed = sum(len(one.of_fate(Fate.LOST)) // 4 for one in found)
    assert binomtest(failed, 300, 0.3).pvalue > 1e-4
    together = {tuple(sorted(one.of_fate(Fate.LOST))) for one in found if len(one.of_fate(Fate.LOST)) == 4}
    assert len(together) > 5  # dealt anew in each round


@pytest.mark.parametrize("aggregators", [1, 5, 20])
def test_rounds_are_abandoned_as_often_as_too_many_aggregators_fail(aggregators):
    """With four fifths enough, of k aggregators k / 5 may fail: else it is a binomial tail."""
    found = run(f"aggregators={aggregators}, aggregator_fails=0.2, least=0.8", 60, training={"rounds": 60, "batch_size": None, "local_epochs": 1})  # fmt: skip
    chance = 1 - sum(comb(aggregators, j) * 0.2**j * 0.8 ** (aggregators - j) for j in range(aggregators // 5 + 1))
    abandoned = [one for one in found if one.abandoned is not None]
    assert binomtest(len(abandoned), 60, chance).pvalue > 1e-4
    assert all("updates are left, of at least 16" in one.abandoned for one in abandoned)


def test_a_failed_coordinator_loses_the_round_and_not_the_model():
    found = run("coordinator_fails=0.5", 40)
    lost = [number for number, one in enumerate(found) if one.abandoned is not None]
    assert binomtest(len(lost), 40, 0.5).pvalue > 1e-4
    assert {found[number].abandoned for number in lost} == {"the coordinator failed"}
    for number, one in enumerate(found[1:], start=1):
        assert torch.equal(one.model, found[number - 1].model) == (number in lost)
    assert found[-1].moment.seconds == pytest.approx(40 * 2.0)  # what was lost took its time


def test_what_is_committed_is_that_of_the_devices_that_are_left():
    usual: dict[str, Any] = {"clients": {"total": 20}, "training": {"rounds": 1, "batch_size": 32}}
    spec = "google(over=1, aggregators=2, aggregator_fails=0.5, least=0.1)"
    seed, one = next(
        (seed, one) for seed in range(20) for one in reports(spec, seed, **usual) if len(one.clients) == 10
    )
    start, end = models(spec, seed, **usual)
    _, setup = scene("google(over=1)", seed, **usual)
    rows = torch.empty(10, setup.task.dim)
    setup.task.local_updates(start, sorted(one.clients), setup.local_plan, setup.rng.child("round", 1), rows)
    assert torch.allclose(end, start + rows.double().mean(0).float(), atol=1e-6)


def test_nothing_fails_unless_it_is_said():
    assert cell("google").id == cell({"name": "google", "over": 1.3, "window": 120.0, "least": 0.8}).id
    assert not {"aggregators", "aggregator_fails", "coordinator_fails"} & set(cell("google").canonical["architecture"])
    assert torch.equal(models("google", **TWENTY), models("google(aggregators=5, aggregator_fails=1e-12)", **TWENTY))


@pytest.mark.parametrize(
    ("spec", "protocol", "why"),
    [
        ("google(aggregators=5)", {}, "Set aggregators and aggregator_fails, or neither."),
        ("google(aggregator_fails=0.1)", {}, "Set aggregators and aggregator_fails, or neither."),
        (
            "google(coordinator_fails=0.1)",
            {"privacy": {"kind": "client", "noise_multiplier": 1.0}},
            "privacy is made for that",
        ),
        (
            "google(coordinator_fails=0.1)",
            {"secure_aggregation": "full"},
            "Leave out aggregator_fails and coordinator_fails",
        ),
    ],
)
def test_what_is_refused(spec, protocol, why):
    assert why in " ".join(cell(spec, clients={"total": 20}, protocol=protocol).verdict.reasons)


@pytest.mark.slow
def test_the_more_aggregators_the_fewer_rounds_are_lost_and_the_sooner_it_learns():
    def seconds(aggregators: int, seed: int) -> float:
        spec = f"google(over=1, aggregators={aggregators}, aggregator_fails=0.3, least=0.5)"
        training = {"rounds": 120, "batch_size": 32, "lr": 0.05}
        found = reports(spec, seed, clients={"total": 20}, training=training)
        return next(one.moment.seconds for one in found if one.evaluation.accuracy >= 0.85)

    one, twenty = ([seconds(aggregators, seed) for seed in range(3)] for aggregators in (1, 20))
    assert sum(one) > 1.2 * sum(twenty)
