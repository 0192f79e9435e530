"""Stops a run of which every trial fails alike: what is wrong is said after three, and not after three hundred."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedguard.bench.records.schema import Record
from fedguard.bench.running.selection import Trial

#: So many failures, and of so many cells where there are as many, are enough.
ENOUGH = 3


class FailureMonitor:
    """The failures of a run, as long as nothing else has come of it.

    Args:
        pending: what is to be run.
        hopeful: whether nothing that is stored has succeeded.
    """

    def __init__(self, pending: Sequence[Trial], hopeful: bool) -> None:
        self._needed = min(ENOUGH, len({cell for cell, _ in pending}))
        self._watches = hopeful
        self._failed: list[Trial] = []
        self._reasons: dict[str, str] = {}

    def take_in(self, record: Record) -> None:
        """A trial is over; one that succeeded ends the watch."""
        if not self._watches:
            return
        self._watches = record["status"] == "failed"
        self._failed.append((record["cell"], record["seed"]))
        reason = str(record["reason"])
        self._reasons[re.sub(r"\d+", "#", reason)] = reason  # numbers of nodes, seeds and processes differ

    def sort_trials(self, waiting: list[Trial]) -> list[Trial]:
        """Cells of which nothing has failed come first: a cell that fails with each seed says nothing of the others."""
        if not self._watches or not self._failed:
            return waiting
        failed = {cell for cell, _ in self._failed}
        return sorted(waiting, key=lambda trial: trial[0] in failed)

    @property
    def reason(self) -> str | None:
        """Why all fail, where enough have, and of one reason; else None."""
        enough = len(self._failed) >= ENOUGH and len({cell for cell, _ in self._failed}) >= self._needed
        return next(iter(self._reasons.values())) if self._watches and enough and len(self._reasons) == 1 else None
