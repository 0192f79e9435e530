"""FedGuard: attack-defense benchmarks for federated learning whose figures can be trusted.

    import fedguard as fg

    fg.aggregate("nnm >> trimmed_mean", updates, f=4)     # [n, d] -> [d]
    fg.craft("alie", honest, f=4, z=1.5)                   # [h, d] -> [4, d]
    fg.Guard(attack="alie", defense="median", f=4)         # a training loop of your own, attacked and defended
    print(fg.kappa("krum", n=20, f=4))                     # the worst input that a search finds for a rule
    fg.secure_sum(updates, drop={"masked_input": [3]})     # the real protocol, with a client that drops out
    run = fg.run("examples/quick.yaml")
    print(run.table(), run.verdict(), fg.lint(run))
    print(fg.epsilon(noise_multiplier=1.0, sample_rate=0.01, steps=1000).describe())
    fg.reconstruct("inverting_gradients", model, gradient, shape=(1, 8, 8))     # what a gradient gives away
    print(fg.tune("examples/quick.yaml"))                  # defenses tuned fairly, and a suite that reports them
    fg.save_baseline(run, "baseline.json")                 # and later, in CI:
    assert fg.gate(run, "baseline.json").passed            # has anything become worse?

Importing the package is cheap; torch is loaded with the first of these calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.api import audit, explain, lint, names, open_run, run, tune
    from fedguard.app.report import report
    from fedguard.arrays import aggregate, craft, kappa, secure_sum
    from fedguard.bench.gate.work import gate, save_baseline
    from fedguard.bench.results.compare import compare
    from fedguard.bench.results.run import Run
    from fedguard.bench.running.engines.ray import Ray
    from fedguard.guard import Guard
    from fedguard.privacy.gaussian import epsilon
    from fedguard.reconstruction import reconstruct, score_reconstruction

__all__ = [
    "Guard",
    "Ray",
    "Run",
    "aggregate",
    "audit",
    "compare",
    "craft",
    "epsilon",
    "explain",
    "gate",
    "kappa",
    "lint",
    "names",
    "open_run",
    "reconstruct",
    "report",
    "run",
    "save_baseline",
    "score_reconstruction",
    "secure_sum",
    "tune",
]

_HOME = {
    "Guard": "fedguard.guard",
    "Ray": "fedguard.bench.running.engines.ray",
    "Run": "fedguard.bench.results.run",
    "aggregate": "fedguard.arrays",
    "compare": "fedguard.bench.results.compare",
    "craft": "fedguard.arrays",
    "epsilon": "fedguard.privacy.gaussian",
    "gate": "fedguard.bench.gate.work",
    "kappa": "fedguard.arrays",
    "reconstruct": "fedguard.reconstruction",
    "report": "fedguard.app.report",
    "save_baseline": "fedguard.bench.gate.work",
    "score_reconstruction": "fedguard.reconstruction",
    "secure_sum": "fedguard.arrays",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedguard' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME.get(name, "fedguard.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
