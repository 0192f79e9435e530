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
    print(fg.accept("my_rule.py").headline)                # a rule of your own: its contract, and what the worst attack leaves
    fg.audit(add_noise, "epsilon=8, delta=1e-5, per=release")     # a mechanism of your own: does it keep its claim?

Importing the package is cheap; torch is loaded with the first call that computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedguard.lazy import lazy_names

if TYPE_CHECKING:
    from fedguard.api import audit, run, tune
    from fedguard.app.report import report
    from fedguard.arrays import aggregate, craft, kappa, secure_sum
    from fedguard.bench.acceptance.accept import accept
    from fedguard.bench.gate.work import gate, save_baseline
    from fedguard.bench.results.compare import compare
    from fedguard.bench.results.run import Run
    from fedguard.bench.running.engines.ray import Ray
    from fedguard.guard import Guard
    from fedguard.lookup import explain, lint, names, open_run
    from fedguard.privacy.gaussian import epsilon
    from fedguard.reconstruction import reconstruct, score_reconstruction
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "Guard",
    "Ray",
    "Run",
    "accept",
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


def __dir__() -> list[str]:
    return sorted(__all__)
