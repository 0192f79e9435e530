"""The completed trials of a run, with their positions in the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedguard.bench.results.places import setting
from fedguard.bench.results.run import Run


def with_setting(name: str, run: Run, swept: Mapping[str, Any]) -> str:
    """The name of a defense or an attack, with the setting if there are several."""
    return ", ".join([name, *([setting(swept, run.swept)] if run.swept else [])])
