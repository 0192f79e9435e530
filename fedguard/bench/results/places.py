"""Positions of cells in the matrix, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def setting(swept: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The values of some keys: ``clients.malicious = 4, task.model = mlp``; "" where there are none."""
    return ", ".join(f"{key} = {swept[key]}" for key in keys)


def label(swept: Mapping[str, str]) -> str:
    """``alie against krum, clients.malicious = 4``."""
    attack = "no attack" if swept["attack"] == "none" else swept["attack"]
    rest = [key for key in swept if key not in ("attack", "defense")]
    return ", ".join(part for part in (f"{attack} against {swept['defense']}", setting(swept, rest)) if part)
