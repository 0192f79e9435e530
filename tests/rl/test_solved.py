"""Actors learn: CartPole is solved, and an attack on a few of them is held by a rule."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedguard.bench.records.record import curve
from fedguard.bench.running.trial import run_trial
from fedguard.config import plan, read_document, read_suite
from tests.rl.acting import cell
from tests.root import ROOT

LEARNING: dict[str, Any] = {
    "task": {"data": "cartpole", "model": "towers"},
    "clients": {"total": 8},
    "training": {
        "algorithm": "actor_critic(t_max=20, entropy=0)",
        "lr": 0.1,
        "rounds": 24,
        "server_lr": 0.03,
        "server_optimizer": {"name": "adam", "tau": 1e-5},
    },
    "evaluation": {"every": 24},
}


def test_in_seconds_actors_learn_to_balance_much_longer_than_by_chance() -> None:
    record, _ = run_trial(cell("a3c", **LEARNING), 0, {})
    returns = record["result"]["returns"]
    assert returns["final"] > 3 * returns["guess"]


@pytest.mark.slow
@pytest.mark.parametrize("example", ["a3c", "impala", "apex"])
def test_cartpole_is_solved(example: str) -> None:
    """A mean return of 475 over 100 episodes, of the last five evaluations together, in at least 4 of 5 seeds.

    In the short form (ANCHOR_SEEDS=1) in one of the first two, since five take minutes for each system.
    """
    seeds, least = (2, 1) if os.environ.get("ANCHOR_SEEDS") == "1" else (5, 4)
    document = read_document(ROOT / "examples" / f"{example}.yaml")
    made, *_ = plan(document, read_suite(document)).cells
    finals: list[float] = []
    for seed in range(seeds):
        if sum(final >= 475 for final in finals) == least:  # whatever the other seeds come to
            break
        record, _ = run_trial(made, seed, {})
        finals.append(record["result"]["returns"]["final"])
        assert len(curve(record, "returns")) == 20
    assert sum(final >= 475 for final in finals) >= least, finals


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("ANCHOR_SEEDS") == "1", reason="ten trainings take many minutes: make test-slow")
def test_who_remembers_balances_longer_than_who_does_not() -> None:
    """R2D2 on CartPole without velocities beside the same network whose memory is 0: the 95 % intervals of five seeds each do
    not meet."""
    document = read_document(ROOT / "examples" / "r2d2.yaml")
    with_memory, without = plan(document, read_suite(document)).cells
    ends = []
    for made, side in ((with_memory, -1), (without, 1)):
        finals = [run_trial(made, seed, {})[0]["result"]["returns"]["final"] for seed in range(5)]
        half = stats.t.ppf(0.975, 4) * np.std(finals, ddof=1) / np.sqrt(5)
        ends.append(np.mean(finals) + side * half)
    assert ends[0] > ends[1], ends
