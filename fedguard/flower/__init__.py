"""Flower apps under attack, and defended: https://flower.ai, version 1.41 and later.

from fedguard.flower import under_attack

app = under_attack(app, attack="ipm(tau=5)", f=2)                      # the one line more in a team's own server_app.py
app = under_attack(app, attack="ipm(tau=5)", defense="median", f=2)    # and whether a rule of the catalog would help
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedguard.bridges.flower.grid import GuardedGrid, under_attack
    from fedguard.bridges.flower.mod import malicious_mod
    from fedguard.bridges.flower.strategy import FedGuardStrategy

__all__ = ["FedGuardStrategy", "GuardedGrid", "malicious_mod", "under_attack"]

_MODULES = {"GuardedGrid": "grid", "under_attack": "grid", "malicious_mod": "mod", "FedGuardStrategy": "strategy"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a deployed client starts a process for each message, and needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'fedguard.flower' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedguard.bridges.flower.{_MODULES[name]}"), name)
