"""Trials of a training that FedGuard composes: they run in the worker's own process."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedguard.bench.records import pictures, replay
from fedguard.bench.records.record import from_text, to_text
from fedguard.bench.records.store import RunFolder, open_atomically
from fedguard.bench.running.blame import in_words
from fedguard.bench.running.code import data_digest
from fedguard.bench.running.plugin_state import diff_plugin_state, snapshot_plugin_state
from fedguard.bench.running.procedures.contract import Procedure
from fedguard.bench.running.rehearsal import why_not
from fedguard.bench.running.replay import RoundKeeper
from fedguard.bench.running.shared_state import diff_shared_state, snapshot_shared_state
from fedguard.bench.running.trial import Progress, run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import PlannedCell
from fedguard.contracts import Data, Examples, Reconstruction
from fedguard.tasks.data import load_dataset


class ComposedProcedure(Procedure):
    """`run_trial`, with its effects on other trials, and its artifacts and log."""

    here = True

    def require(self, cells: Collection[PlannedCell], *, cluster: bool) -> None:
        """Nothing beside FedGuard."""

    def why_not(self, cell: PlannedCell, seed: int, bench: Workbench) -> str | None:
        return why_not(cell, seed, bench)

    def data(self, cell: PlannedCell) -> str | None:
        return data_digest(cell.data)

    def trial(self, cell: PlannedCell, job: Mapping[str, Any], bench: Workbench, progress: Progress) -> dict[str, Any]:
        def clean_model() -> torch.Tensor | None:
            path = Path(job["clean_model"])
            with contextlib.suppress(OSError, ValueError, EOFError):  # missing or damaged: it is trained again
                found = np.load(path, allow_pickle=False) if path.is_file() else None
                if isinstance(found, np.ndarray) and found.dtype in (np.float32, np.float64) and found.ndim == 1:
                    return torch.from_numpy(found)
            return None

        def album(name: str, claim: Reconstruction, truth: Examples) -> None:
            folder = RunFolder(Path(job["folder"]))
            assert isinstance(cell.data, Data)  # nothing is rebuilt of actors
            pictures.save(folder, cell.id, job["seed"], name, claim, truth, load_dataset(cell.data).value_range)

        keeper = RoundKeeper(job["replay"]) if job.get("replay") else None
        held, before = snapshot_plugin_state(cell), snapshot_shared_state()
        try:
            record, model = run_trial(
                cell,
                job["seed"],
                job["controls"],
                bench,
                progress=progress,
                clean_model=clean_model,
                album=album,
                replay=keeper,
            )
            from_text(to_text(record))  # an attack's notes may hold anything: what cannot be read back has failed
            if keeper is not None:
                replay.save(RunFolder(Path(job["folder"])), job["id"], job["seed"], keeper.rounds)
            if job["model"] is not None:
                with open_atomically(Path(job["model"])) as file:
                    np.save(file, model.numpy(), allow_pickle=False)
            answer: dict[str, Any] = {"record": record, "log": None}
        except Exception as error:
            answer = {
                "record": self.not_run(cell, job["seed"], "failed", in_words(error), bench.compute.name),
                "log": traceback.format_exc(),
            }
        return {
            **answer,
            "changed": [
                *diff_shared_state(before, snapshot_shared_state()),
                *diff_plugin_state(held, snapshot_plugin_state(cell)),
            ],
        }
