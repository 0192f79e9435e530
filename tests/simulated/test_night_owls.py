"""Who comes at other hours, and what becomes of the classes that they alone hold."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
import pytest

from fedguard.config import PlannedCell, build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import RoundReport
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.data.test_partition_laws import examples, split
from tests.systems.scenes import reports

HOUR = 3600.0
OWLS = "day_and_night(owls=0.2)"


# The law and the partition.


def eligible(law: str, hour: float, devices: int = 5000) -> tuple[float, float]:
    """Of the first four fifths of the devices, and of the last: the share that is there."""
    there = load_registry().build("availability", law).start(devices, Rng(0))
    present = [there.wait(device, hour * HOUR) == 0 for device in range(devices)]
    cut = devices * 4 // 5
    return mean(present[:cut]), mean(present[cut:])


def at(hour: float) -> float:
    """Of nights of 8 hours that begin evenly over 6: at this hour since the first began."""
    hour %= 24
    return min(hour, 6) / 6 - min(max(hour - 8, 0), 6) / 6


@pytest.mark.parametrize("hour", [27, 31, 34, 36, 40, 45, 50])
def test_owls_come_twelve_hours_after_the_others(hour):
    early, late = eligible(OWLS, hour)
    assert early == pytest.approx(at(hour), abs=0.03) and late == pytest.approx(at(hour - 12), abs=0.06)
    assert eligible("day_and_night", hour)[1] == pytest.approx(at(hour), abs=0.06)


def test_who_is_no_owl_comes_when_it_did_and_without_owls_no_cell_changes():
    law, plain = load_registry().build("availability", OWLS), load_registry().build("availability", "day_and_night")
    one, other = law.start(10, Rng(3)), plain.start(10, Rng(3))
    assert [one.stretch(device, 0.0) for device in range(8)] == [other.stretch(device, 0.0) for device in range(8)]
    assert "owls" not in plain.spec() and law.spec()["owls"] == 0.2

    def made(there: Any) -> PlannedCell:
        return build_cell(
            CellConfig.model_validate({"network": {"there": there}, "architecture": "google"}), load_registry()
        )

    assert made("day_and_night").id == made({"name": "day_and_night", "night": 8.0, "spread": 6.0}).id != made(OWLS).id


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_labels_go_along_with_the_clients_numbers(gamma):
    labels = [examples().y.numpy()[part] for part in split(f"label_ordered(gamma={gamma})")]
    middle = [np.median(own) for own in labels]
    assert middle == sorted(middle) and middle[0] <= 2 and middle[-1] >= 7
    assert {len(own) for own in labels} <= {71, 72}
    alone = sum(np.isin(own, [number * 10 // 20]).mean() for number, own in enumerate(labels)) / 20
    assert alone == pytest.approx(1 - gamma + gamma / 10, abs=0.05)


# What it does to classes.


def run(system: str, seed: int, there: str, goal: int, rounds: int) -> list[RoundReport]:
    """50 clients, the last ten of them with the last two of the ten classes; a round takes half an hour."""
    return list(
        reports(
            system, seed, network={"compute": {"seconds": 60}, "there": there}, clients={"total": 50, "per_round": goal},
            task={"partition": "label_ordered"}, training={"rounds": rounds, "batch_size": 16}, evaluation={"every": 10},
        )
    )  # fmt: skip


def classes(found: list[RoundReport]) -> list[tuple[float, float]]:
    """Accuracy of the first eight classes and of the last two, in the second half."""
    half = [one.evaluation.class_accuracy for one in found[len(found) // 2 :] if one.evaluation]
    return [(mean(each[:8]), mean(each[8:])) for each in half]


GOOGLE = "google(over=1.3, selection=600, window=1800)"


def owls_in(found: list[RoundReport]) -> int:
    return sum(client >= 40 for one in found for client in one.clients)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_goal_that_no_night_meets_leaves_the_owls_classes_out(seed):
    here, always = run(GOOGLE, seed, OWLS, 15, 200), run(GOOGLE, seed, "always", 15, 200)
    assert owls_in(here) == 0 and sum(one.abandoned is not None for one in here) > 100
    assert mean(owl for _, owl in classes(here)) < 0.02 < 0.75 < mean(day for day, _ in classes(here))
    assert mean(owl for _, owl in classes(always)) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_goal_that_each_night_meets_makes_the_model_forget_by_turns(seed):
    swings = classes(run(GOOGLE, seed, OWLS, 6, 200))
    assert min(owl for _, owl in swings) < 0.1 < 0.8 < max(owl for _, owl in swings)
    assert min(day for day, _ in swings) < 0.1 < 0.8 < max(day for day, _ in swings)


@pytest.mark.slow
def test_who_waits_for_nobody_hears_the_owls():
    for seed in range(3):
        assert mean(owl for _, owl in classes(run("fedbuff(buffer=10)", seed, OWLS, 15, 200))) > 0.6


def test_owls_are_heard_if_the_goal_is_met_at_night():
    out, heard = run(GOOGLE, 0, OWLS, 15, 60), run(GOOGLE, 0, OWLS, 6, 60)
    assert owls_in(out) == 0 and out[-1].evaluation.class_accuracy[8:] == (0, 0)
    assert owls_in(heard) > 20
    assert max(owl for _, owl in classes(heard)) > 0.7 > 0.2 > min(day for day, _ in classes(heard))
