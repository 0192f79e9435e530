"""Trials of a third-party app: they run in separate processes and change nothing in the worker's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedguard.bench.records.store import RunFolder, write_atomically
from fedguard.bench.running.apps import run_app, without_framework
from fedguard.bench.running.procedures.contract import Procedure
from fedguard.bench.running.trial import Progress
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.errors import ConfigError


class AppProcedure(Procedure):
    """`run_app`, with the log of its processes."""

    here = False

    def require(self, cells: Collection[PlannedCell], *, cluster: bool) -> None:
        if cluster:
            raise ConfigError(
                "app: an app runs on the machine on which the command is started. Leave out --engine ray."
            )
        for name in dict.fromkeys(cell.config.app.framework for cell in cells if cell.config.app):
            if why := without_framework(name):
                raise ConfigError(why)

    def why_not(self, cell: PlannedCell, seed: int, bench: Workbench) -> str | None:
        return bench.apps.why_not(cell)

    def data(self, cell: PlannedCell) -> str | None:
        return None

    def trial(self, cell: PlannedCell, job: Mapping[str, Any], bench: Workbench, progress: Progress) -> dict[str, Any]:
        record, log = run_app(cell, job["seed"], job["controls"], bench.apps, Path(job["folder"]))
        if record["status"] == "ok" and log:  # what its processes said, kept where the log of a failed trial would be
            write_atomically(RunFolder(Path(job["folder"])).log_path(cell.id, job["seed"]), log.encode())
            log = ""
        return {"record": record, "log": log or None, "changed": []}
