"""How often an audit calls right code wrong, and how often it sees a planted fault.

The real mechanisms with 1,000 + 1,000 canaries at 95 % confidence, delta = 1e-5, claimed by PRV. First each method's bound by
itself, then the default audit with its residual checks, on right code and on code with one fault each, which stand in
`tests/privacy/audit/planted.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure import arguments, keep

sys.path.append(str(Path(__file__).parents[1]))

from fedguard.privacy.audit import METHODS, Scores, audit
from fedguard.privacy.audit.subjects import CentralLevel
from fedguard.rng import Rng
from tests.privacy.audit import planted

Figures = list[dict[str, Any]]
FAULTS: dict[str, type] = {
    "right": planted.CentralDP,
    "noise x 0.5": planted.HalvedNoise,
    "clip x 2": planted.DoubledClip,
    "no noise": planted.NoNoise,
    "seed used again": planted.ReusedSeed,
    "divided by who came": planted.PerBatchNormaliser,
}
SAMPLED = {"q": 0.2, "z": 1.0, "rounds": 20}


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


def by_fault(runs: int, slow: int, canaries: int) -> Figures:
    """Share of default audits that call code violated, by the bound and by each check."""
    subjects: list[tuple[str, Callable[[], Any], int]] = []
    for where, settings in (("server, all clients", {}), ("server, Poisson", SAMPLED)):
        for name, kind in FAULTS.items():
            subjects.append(
                (f"{where}: {name}", lambda kind=kind, settings=settings: planted.central(kind, **settings), runs)
            )
    for name, people in (("fixed size", planted.FixedSize), ("twice the rate", planted.TwiceTheRate)):
        subjects.append(
            (f"server, Poisson: {name}", lambda people=people: planted.central(people=people, **SAMPLED), runs)
        )
    shared = planted.shared()
    for name, broken in (
        ("right", lambda honest: honest),
        ("noise x 0.5", planted.shared_halved),
        ("clip x 2", planted.shared_doubled_clip),
        ("noise of 30 % missing", planted.shared_dropped),
        ("seed used again", planted.shared_reused),
    ):
        subjects.append((f"clients: {name}", lambda broken=broken: broken(shared), slow))
    for name, change in (
        ("right", None),
        ("noise x 0.5", lambda plan, rng: (planted.with_level(plan, noise=0.5), rng)),
        ("clip x 2", lambda plan, rng: (planted.with_level(plan, clip=2.0, noise=0.5), rng)),
        ("seed used again", lambda plan, rng: (plan, Rng(5))),
        ("twice the rate", lambda plan, rng: (planted.with_private(plan, sample_rate=1.0), rng)),
        ("another divisor", lambda plan, rng: (replace(plan, batch_size=130), rng)),
    ):
        subjects.append((f"DP-SGD: {name}", lambda change=change: planted.private(change), slow))
    return [_faults_seen(name, make(), times, canaries) for name, make, times in subjects]


def _faults_seen(name: str, subject: Any, runs: int, canaries: int) -> dict[str, Any]:
    found = [audit(subject, canaries=canaries, seed=seed) for seed in range(runs)]
    failed: dict[str, int] = {}
    for one in found:
        for check in one.checks:
            failed[check.name] = failed.get(check.name, 0) + (not check.passed)
    figure = {
        "code": name,
        "violated": sum(one.verdict == "violated" for one in found) / runs,
        "canaries": sum(one.refuted for one in found) / runs,
        **{check: count / runs for check, count in failed.items()},
        "runs": runs,
    }
    print("  ".join(f"{key} {value}" for key, value in figure.items()), flush=True)
    return figure


def main() -> None:
    options = arguments(__doc__ or "")
    canaries, runs, slow = (60, 2, 1) if options.smoke else (1000, 100, 10)
    keep(options.json, by_method(runs, canaries) + by_fault(runs, slow, canaries))


if __name__ == "__main__":
    main()
