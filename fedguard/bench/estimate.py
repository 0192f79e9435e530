"""How long a suite will take, from a few rounds measured now."""

from __future__ import annotations

import dataclasses
import time

import torch

from fedguard.bench.trial import run_trial
from fedguard.config import Cell, Plan

#: Seconds until the first trial of a suite starts: workers load their libraries.
START = 5.0


def estimate_seconds(plan: Plan, jobs: int, samples: int = 6) -> float:
    """Wall seconds for the whole plan on ``jobs`` workers, without regard to what is stored already.

    Up to ``samples`` cells that may run, evenly spaced, are trained for two rounds each with one thread.
    """
    legal = [cell for cell in plan.cells if not cell.verdict.reasons]
    chosen = legal[:: max(1, len(legal) // samples)][:samples]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        per_round = sum(_seconds_per_round(cell, plan.suite.seeds[0]) for cell in chosen) / len(chosen)
    finally:
        torch.set_num_threads(threads)
    rounds = sum(cell.config.training.rounds for cell in legal) * len(plan.suite.seeds)
    return START + per_round * rounds / jobs


def _seconds_per_round(cell: Cell, seed: int, rounds: int = 2) -> float:
    training = dataclasses.replace(cell.config.training, rounds=rounds)
    short = dataclasses.replace(cell, config=cell.config.model_copy(update={"training": training}))
    run_trial(short, seed, {})  # the first time loads and deals the data
    begun = time.perf_counter()
    run_trial(short, seed, {})
    return (time.perf_counter() - begun) / rounds
