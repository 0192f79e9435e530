"""Actors learn: CartPole is solved, and an attack on a few of them is held by a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedguard.bench.records.record import curve
from fedguard.bench.running.trial import run_trial
from fedguard.config import plan, read_document, read_suite
from tests.reinforcement.acting import cell

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
    """A mean return of 475 over 100 episodes, of the last five evaluations together, in at least 4 of 5 seeds."""
    document = read_document(Path(__file__).parents[2] / "examples" / f"{example}.yaml")
    made, *_ = plan(document, read_suite(document)).cells
    finals = []
    for seed in range(5):
        record, _ = run_trial(made, seed, {})
        finals.append(record["result"]["returns"]["final"])
        assert len(curve(record, "returns")) == 20
    assert sum(final >= 475 for final in finals) >= 4, finals
