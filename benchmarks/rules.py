"""Defenses in passes over memory: CPU time divided by that of `updates.mean(0)`, in one run."""

from __future__ import annotations

import torch
from measure import alternate, arguments, keep

import fedguard as fg

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
    jobs = {defense: lambda defense=defense: fg.aggregate(defense, updates, f=n // 5) for defense in DEFENSES}
    seconds = alternate({"one pass": lambda: updates.mean(0), **jobs}, repeats=1 if options.smoke else 3)
    figures = [
        {"defense": name, "passes": seconds[name] / seconds["one pass"], "seconds": seconds[name]} for name in jobs
    ]
    print(f"n = {n}, d = {d:,}; one pass takes {1000 * seconds['one pass']:.1f} ms")
    for figure in figures:
        print(f"{figure['defense']:24} {figure['passes']:6.1f} passes")
    keep(options.json, [{**figure, "n": n, "d": d} for figure in figures])


if __name__ == "__main__":
    main()
