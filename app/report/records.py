"""The trials of a run that ran, with their places in the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedguard.bench.places import setting
from fedguard.bench.record import Record
from fedguard.bench.run import Run


def ran(run: Run) -> Iterator[tuple[dict[str, str], Record]]:
    """What is swept, and the record, of each trial of the matrix that ran; corners are not among them."""
    for position in run.manifest["positions"]:
        for seed in run.seeds:
            record = run.records.get((position["cell"], seed))
            if record is not None and record["status"] == "ok":
                yield position["swept"], record


def with_setting(name: str, run: Run, swept: Mapping[str, Any]) -> str:
    """A defense or an attack, and the setting where there are several."""
    return ", ".join([name, *([setting(swept, run.swept)] if run.swept else [])])
