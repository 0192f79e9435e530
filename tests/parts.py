"""The set-up of a cell of given parts, which no suite has written."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fedguard.contracts import Cell, Protocol, Setup
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification


def setup_of_parts(task: Classification, rng: Rng, malicious: Collection[int] = (), **parts: Any) -> Setup:
    """A set-up of ``task``; ``parts`` are those of its cell."""
    usual = {"data": load_registry().build("data", "digits"), "model": task.model, "protocol": Protocol()}
    cell = Cell(**{**usual, "attacking": len(malicious), **parts})
    return Setup(cell=cell, task=task, rng=rng, malicious=frozenset(malicious))
