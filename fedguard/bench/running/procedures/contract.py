"""What the bench asks of whatever tries a cell."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fedguard.bench.records.record import build_record
from fedguard.bench.records.schema import Record
from fedguard.bench.running.code import code_of
from fedguard.bench.running.environment import environment
from fedguard.bench.running.trial import Progress
from fedguard.bench.running.workbench import Workbench
from fedguard.config import Cell


class Procedure(ABC):
    """How the cells of one kind of target are looked at before they run, run, and described in their records.

    Attributes:
        here: whether trials run in the worker's own process: so that a limit in time reaches them, and two rounds tell how
            long all of them take.
    """

    here: ClassVar[bool]

    @abstractmethod
    def require(self, *, cluster: bool) -> None:
        """Raises ConfigError if what all trials need is not there, on this machine or on a cluster of others."""

    @abstractmethod
    def why_not(self, cell: Cell, seed: int, bench: Workbench) -> str | None:
        """Why a cell cannot run, before it does; None if it seems to."""

    @abstractmethod
    def card(self, cell: Cell) -> dict[str, Any]:
        """The cell's threat card, as far as it is known before it runs."""

    @abstractmethod
    def in_words(self, cell: Cell) -> str:
        """Who attacks, and what they see."""

    @abstractmethod
    def data(self, cell: Cell) -> str | None:
        """The digest of the data; None where nobody here knows them."""

    def not_run(self, cell: Cell, seed: int, status: str, reason: str, device: str = "cpu") -> Record:
        """The record of a trial that was ``refused``, or that ``failed`` on a device."""
        body: dict[str, Any] = {
            "status": status,
            "reason": reason,
            "threat_card": self.card(cell),
            "result": None,
            "cost": None,
            "flags": [],
        }
        made = {**environment(device), "code": code_of(cell), "data": self.data(cell), "started": time.time()}
        return build_record(cell, seed, {**body, "environment": made})

    @abstractmethod
    def trial(self, cell: Cell, job: Mapping[str, Any], bench: Workbench, progress: Progress) -> dict[str, Any]:
        """Run a job of a worker, and return what it says at the end; see `fedguard.bench.running.worker`."""
