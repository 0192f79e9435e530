"""The trials of a run that ran, with their places in the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run


def with_setting(name: str, run: Run, swept: Mapping[str, Any]) -> str:
    """A defense or an attack, and the setting where there are several."""
    return ", ".join([name, *([setting(swept, run.swept)] if run.swept else [])])
