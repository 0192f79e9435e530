"""What a search against a known rule costs: 20 probes, preparation included, in units of one aggregation by that rule."""

from __future__ import annotations

import torch
from measure import alternate, arguments, keep

from fedguard.aggregation import KnownPipeline, aggregate
from fedguard.contracts import RuleContext, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng

DEFENSES = ["nnm >> krum", "krum", "geometric_median", "nnm >> trimmed_mean", "trimmed_mean"]
PROBES = 20


def main() -> None:
    options = arguments(__doc__)
    n, f, d = (12, 2, 2000) if options.smoke else (50, 10, 1_000_000)
    updates = torch.randn(n, d)
    honest, directions = updates[f:], updates[f:].std(0)[None]

    def context(rows: int, _: torch.Tensor) -> RuleContext:
        facts = {"round": 1, "rng": Rng(0), "state": {}, "layers": (d,), "shape": (), "server_lr": 1.0}
        return RuleContext("benchmark", Sight.EACH_UPDATE, f=f, clients=tuple(range(rows)), **facts)

    def search(known: KnownPipeline) -> None:
        ask = known.probes(honest, directions, f)
        start = torch.full((n - f + 1,), 1 / (n - f), dtype=torch.float64)
        for probe in range(PROBES):
            start[-1] = probe - PROBES / 2  # mu + z * sigma, as opt_alie does
            ask(start.expand(f, -1))

    jobs = {}
    for defense in DEFENSES:
        pipeline = load_registry().pipeline(defense)
        known = KnownPipeline(pipeline, context)
        jobs[defense] = lambda pipeline=pipeline: aggregate(pipeline, updates, context(n, updates))
        jobs[f"{PROBES} probes of {defense}"] = lambda known=known: search(known)
    seconds = alternate(jobs, repeats=1 if options.smoke else 5)
    figures = []
    print(f"n = {n}, f = {f}, d = {d:,}; {PROBES} probes with their preparation, in aggregations by the same rule")
    for defense in DEFENSES:
        asked = seconds[f"{PROBES} probes of {defense}"]
        figures.append({"defense": defense, "ratio": asked / seconds[defense], "seconds": asked})
        print(f"{defense:24} {figures[-1]['ratio']:6.2f} of {1000 * seconds[defense]:.0f} ms")
    keep(options.json, [{**figure, "n": n, "f": f, "d": d, "probes": PROBES} for figure in figures])


if __name__ == "__main__":
    main()
