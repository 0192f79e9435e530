"""FedGuard: attack-defense benchmarks for federated learning whose figures can be trusted.

    import fedguard as fg

    fg.aggregate("nnm >> trimmed_mean", updates, f=4)     # [n, d] -> [d]
    fg.craft("alie", honest, f=4, z=1.5)                   # [h, d] -> [4, d]
    run = fg.run("examples/quick.yaml")
    print(run.table())

Importing the package is cheap; torch is loaded with the first of these calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.api import aggregate, craft, names, open_run, run
    from fedguard.bench.run import Run

__all__ = ["Run", "aggregate", "craft", "names", "open_run", "run"]

_HOME = {"Run": "fedguard.bench.run"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedguard' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME.get(name, "fedguard.api")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
