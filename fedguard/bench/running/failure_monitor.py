"""Stops a run if every trial fails for the same reason: the user learns it after three trials instead of three hundred."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedguard.bench.records.schema import Record
from fedguard.bench.running.selection import Trial

#: Number of failures that stop a run; they must come from as many cells, if there are as many.
ENOUGH = 3


class FailureMonitor:
    """The failures of a run, as long as no trial has succeeded.

    Args:
        pending: the trials to be run.
        hopeful: whether no stored trial has succeeded.
    """

    def __init__(self, pending: Sequence[Trial], hopeful: bool) -> None:
        self._needed = min(ENOUGH, len({cell for cell, _ in pending}))
        self._watches = hopeful
        self._failed: list[Trial] = []
        self._reasons: dict[str, str] = {}

    def take_in(self, record: Record) -> None:
        """Count a finished trial; a success ends the monitoring."""
        if not self._watches:
            return
        self._watches = record["status"] == "failed"
        self._failed.append((record["cell"], record["seed"]))
        reason = str(record["reason"])
        self._reasons[re.sub(r"\d+", "#", reason)] = reason  # numbers of nodes, seeds and processes differ

    def sort_trials(self, waiting: list[Trial]) -> list[Trial]:
        """Cells without failures first: a cell that fails with each seed says nothing of the others."""
        if not self._watches or not self._failed:
            return waiting
        failed = {cell for cell, _ in self._failed}
        return sorted(waiting, key=lambda trial: trial[0] in failed)

    @property
    def reason(self) -> str | None:
        """The common reason, if enough trials have failed for one reason; else None."""
        enough = len(self._failed) >= ENOUGH and len({cell for cell, _ in self._failed}) >= self._needed
        return next(iter(self._reasons.values())) if self._watches and enough and len(self._reasons) == 1 else None
