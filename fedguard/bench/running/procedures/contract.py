"""The interface through which the bench tries cells."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fedguard.bench.records.record import build_record
from fedguard.bench.records.schema import Record
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.code import code_of
from fedguard.bench.running.environment import environment
from fedguard.bench.running.trial import Progress
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell


class Procedure(ABC):
    """How cells of one kind are checked, run, and described in their records.

    Attributes:
        here: whether trials run in the worker's own process, so that a time limit applies to them, and two rounds suffice to
            estimate how long all rounds take.
    """

    here: ClassVar[bool]

    @abstractmethod
    def require(self, cells: Collection[PlannedCell], *, cluster: bool) -> None:
        """Raise ConfigError if a requirement of trials of these cells is missing, on this machine or on a cluster."""

    @abstractmethod
    def why_not(self, cell: PlannedCell, seed: int, bench: Workbench) -> str | None:
        """Why a cell cannot run, as far as is known beforehand; None if it seems able to run."""

    @abstractmethod
    def data(self, cell: PlannedCell) -> str | None:
        """The digest of the data; None if they are unknown here."""

    def not_run(self, cell: PlannedCell, seed: int, status: str, reason: str, device: str = "cpu") -> Record:
        """The record of a trial that was ``refused``, or that ``failed`` on a device."""
        body: dict[str, Any] = {
            "status": status,
            "reason": reason,
            "threat_card": threat_card(cell),
            "result": None,
            "cost": None,
            "flags": [],
        }
        made = {**environment(device), "code": code_of(cell), "data": self.data(cell), "started": time.time()}
        return build_record(cell, seed, {**body, "environment": made})

    @abstractmethod
    def trial(self, cell: PlannedCell, job: Mapping[str, Any], bench: Workbench, progress: Progress) -> dict[str, Any]:
        """Run a job of a worker, and return its last message; see `fedguard.bench.running.worker`."""
