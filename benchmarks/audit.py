"""How often an audit calls right code wrong, and how often it sees a planted fault.

First each method's bound by itself: the server's mechanism with 1,000 + 1,000 canaries at 95 % confidence, delta = 1e-5, claims
by PRV. Then the whole audit of a suite, its training included, with 200 + 200 canaries: of right code, and of one fault at a
time in the classes that train, which stand in `tests/privacy/audit/plants.py`. The short form (--smoke) ends with an error
where it misses a fault.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from measure import arguments, keep
from scipy.stats import binom, binomtest

sys.path.append(str(Path(__file__).parents[1]))

from fedguard.privacy.audit import METHODS, Scores
from fedguard.privacy.audit.subjects import CentralLevel
from fedguard.rng import Rng
from tests.privacy.audit import planted, plants

Figures = list[dict[str, Any]]
#: Canaries, and rounds of the training.
SIZE = (200, 24)
#: In the short form, where clients draw noise and so more of it: fewer of both, which show every fault still.
SHORT = {"DP-SGD": (100, 12), "clients, Skellam": (100, 6), "clients, discrete Gaussian": (100, 6)}
FAULTS: dict[str, type] = {
    "right": planted.CentralDP,
    "noise x 0.5": planted.HalvedNoise,
    "clip x 2": planted.DoubledClip,
}


def by_method(runs: int, canaries: int) -> Figures:
    """Share of runs in which each bound (or estimate) exceeds the claim, over claims of several sizes."""
    figures: Figures = []
    for z in (8.0, 4.0, 2.0):
        for name in ("right", "noise x 0.5", "clip x 2"):
            subject = planted.central(FAULTS[name], z=z)
            for method in METHODS:
                bounds = [_bound(subject, method, seed, canaries) for seed in range(runs)]
                figures.append(
                    {
                        "claimed mu": 16**0.5 / z,
                        "claimed epsilon": subject.claim.value,
                        "code": name,
                        "method": method,
                        "mean epsilon": sum(bounds) / runs,
                        "above the claim": sum(one > subject.claim.value for one in bounds) / runs,
                        "runs": runs,
                    }
                )
                print(
                    "  ".join(
                        f"{value:.4g}" if isinstance(value, float) else f"{value}" for value in figures[-1].values()
                    )
                )
    return figures


_SEEN: dict[tuple[int, str], Scores] = {}


def _bound(subject: CentralLevel, method: str, seed: int, canaries: int) -> float:
    """The same scores for all methods."""
    key = (seed, repr(subject))
    if key not in _SEEN:
        included = Rng(seed).child("coins").numpy().random(2 * canaries) < 0.5
        values, _ = subject.observe(included, Rng(seed).child("subject"))
        _SEEN[key] = Scores(values=values, included=included)
    assert subject.claim is not None
    return METHODS[method](_SEEN[key], subject.claim.delta, 0.95).epsilon


def by_fault(runs: int, slow: int, right: int, jobs: int, smoke: bool) -> Figures:
    """How often a whole audit calls code violated: right code, and code with one fault each.

    Args:
        runs, slow: audits of each fault in the server's noise, and in that of clients.
        right: how many times as many of right code.
        jobs: processes, of one thread each; the figures do not depend on their number.

    Raises:
        SystemExit: in the short form a fault was missed, or right code was called violated more often than 5 % allows.
    """
    figures: Figures = []
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_one_thread) as pool:
        for where in plants.SUITES:
            times = runs if where.startswith("server") else slow
            size = SHORT.get(where, SIZE) if smoke else SIZE
            figures.append(_found(pool, where, None, range(100_000, 100_000 + right * times), size))
            for index, one in enumerate(plants.PLANTS):
                if one.where == where:
                    figures.append(_found(pool, where, index, range(times), size))
    alarms = [one for one in figures if one["fault"] == "none: right code"]
    called, audits = sum(one["violated"] for one in alarms), sum(one["runs"] for one in alarms)
    print(f"right code: violated in {called} of {audits}, interval {_interval(called, audits)}")
    missed = [one for one in figures if one not in alarms and one["violated"] < 0.95 * one["runs"]]
    if smoke and (missed or called > binom.ppf(0.999, audits, 0.05)):
        raise SystemExit(f"missed: {missed}; right code called violated {called} times of {audits}")
    return figures


def _found(pool: Executor, where: str, plant: int | None, seeds: range, size: tuple[int, int]) -> dict[str, Any]:
    one = partial(_audit, where, plant, *size)
    found = list(pool.map(one, seeds, chunksize=8))
    failed = Counter(check for _, _, checks in found for check in checks)
    violated = sum(verdict == "violated" for verdict, _, _ in found)
    figure = {
        "audit": where,
        "fault": "none: right code" if plant is None else plants.PLANTS[plant].name,
        "violated": violated,
        "runs": len(seeds),
        "interval": _interval(violated, len(seeds)),
        "canaries": sum(refuted for _, refuted, _ in found),
        "checks": dict(failed),
    }
    print("  ".join(f"{key} {value}" for key, value in figure.items()), flush=True)
    return figure


def _audit(where: str, plant: int | None, canaries: int, rounds: int, seed: int) -> tuple[str, bool, list[str]]:
    """The verdict of one audit, whether its canaries refute the claim, and the checks that failed."""
    fault = None if plant is None else plants.PLANTS[plant].plant
    report = plants.audited(where, fault, seed=seed, canaries=canaries, rounds=rounds)
    return report.verdict, report.refuted, [check.name for check in report.checks if not check.passed]


def _one_thread() -> None:
    torch.set_num_threads(1)


def _interval(successes: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson's, 95 %."""
    found = binomtest(successes, runs).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)


def main() -> None:
    options = arguments(
        __doc__ or "",
        only="audits of the suites whose name begins so, and no methods",
        runs="audits of each fault in the server's noise, a third as many in that of clients, ten times as many of right code",
        jobs="processes; 1 by default",
    )
    # In the short form one audit each.
    runs, right = (1, 1) if options.smoke else (int(options.runs or 20), 10)
    slow = max(1, runs // 3)
    if options.only:
        for name in [name for name in plants.SUITES if not name.startswith(options.only)]:
            del plants.SUITES[name]
    methods = [] if options.only else by_method(*((2, 60) if options.smoke else (100, 1000)))
    keep(options.json, methods + by_fault(runs, slow, right, int(options.jobs or 1), smoke=options.smoke))


if __name__ == "__main__":
    main()
