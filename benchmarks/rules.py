"""Defenses in passes over memory: CPU time divided by that of `updates.mean(0)`, in one run.

Beside each rule stands `fedguard.aggregate`, which also looks for NaN in the updates and builds the defense from its name.
"""

from __future__ import annotations

import torch
from measure import alternate, arguments, keep

import fedguard as fg
from fedguard.aggregation import aggregate
from fedguard.contracts import RuleContext, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng

DEFENSES = [
    "mean",
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "centered_clipping",
    "nnm >> trimmed_mean",
    "nnm >> krum",
    "bucketing >> median",
]


def main() -> None:
    options = arguments(__doc__)
    n, d = (12, 2000) if options.smoke else (50, 1_000_000)
    updates = torch.randn(n, d)
    facts = {"round": 1, "rng": Rng(0), "state": {}, "layers": (d,), "shape": (), "server_lr": 1.0}
    context = RuleContext("benchmark", Sight.EACH_UPDATE, f=n // 5, clients=tuple(range(n)), **facts)
    jobs = {"one pass": lambda: updates.mean(0)}
    for defense in DEFENSES:
        pipeline = load_registry().pipeline(defense)
        jobs[defense] = lambda pipeline=pipeline: aggregate(pipeline, updates, context)
        jobs[f"front door: {defense}"] = lambda defense=defense: fg.aggregate(defense, updates, f=n // 5)
    seconds = alternate(jobs, repeats=1 if options.smoke else 5)
    passes = {name: taken / seconds["one pass"] for name, taken in seconds.items()}
    figures = [
        {
            "defense": defense,
            "passes": passes[defense],
            "front_door": passes[f"front door: {defense}"],
            "seconds": seconds[defense],
        }
        for defense in DEFENSES
    ]
    print(f"n = {n}, d = {d:,}; one pass takes {1000 * seconds['one pass']:.1f} ms")
    for figure in figures:
        print(
            f"{figure['defense']:24} {figure['passes']:6.1f} passes, {figure['front_door']:6.1f} by fedguard.aggregate"
        )
    keep(options.json, [{**figure, "n": n, "d": d} for figure in figures])


if __name__ == "__main__":
    main()
