"""FedGuard: attack-defense benchmarks for federated learning whose figures can be trusted.

    import fedguard as fg

    fg.aggregate("nnm >> trimmed_mean", updates, f=4)     # [n, d] -> [d]
    fg.craft("alie", honest, f=4, z=1.5)                   # [h, d] -> [4, d]
    print(fg.kappa("krum", n=20, f=4))                     # the worst input that a search finds for a rule
    fg.secure_sum(updates, drop={"masked_input": [3]})     # the real protocol, with a client that drops out
    run = fg.run("examples/quick.yaml")
    print(run.table())
    print(fg.tune("examples/quick.yaml"))                  # defenses tuned fairly, and a suite that reports them

Importing the package is cheap; torch is loaded with the first of these calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.api import aggregate, craft, kappa, names, open_run, run, secure_sum, tune
    from fedguard.bench.run import Run

__all__ = ["Run", "aggregate", "craft", "kappa", "names", "open_run", "run", "secure_sum", "tune"]

_HOME = {"Run": "fedguard.bench.run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedguard' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME.get(name, "fedguard.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
