"""Weights & Biases: an offline run for each cell and each trial, to be uploaded by ``wandb sync``."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedguard.bench.results.tracking.folders import is_there, seal
from fedguard.bench.results.tracking.trials import ExportCount, TrackerEntry
from fedguard.errors import MissingExtra, StoreError, oneline


def write(run: str, trials: Sequence[TrackerEntry], target: str) -> ExportCount:
    """Write to ``target/wandb/offline-run-TIME-ID``, with the same ID in each export. Nothing is sent from here.

    Args:
        target: a folder.

    Raises:
        MissingExtra: wandb is not installed.
        StoreError: the folder cannot be written, or wandb rejects the export.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError:
        raise MissingExtra("--wandb", "wandb", "tracking") from None
    new = 0
    try:
        Path(target).mkdir(parents=True, exist_ok=True)
        for trial in trials:
            name = hashlib.sha256(f"{run} {trial.key}".encode()).hexdigest()[:16]
            earlier = list(Path(target, "wandb").glob(f"offline-run-*-{name}"))
            if not any(is_there(folder, trial) for folder in earlier):
                for folder in earlier:
                    shutil.rmtree(folder)
                seal(_write(run, trial, name, target), trial)
                new += 1
    except OSError as error:
        raise StoreError(f"--wandb {target}: cannot be written: {error.strerror}.") from None
    except wandb.Error as error:
        raise StoreError(f"--wandb {target}: {oneline(error)[:300]}.") from None
    return ExportCount(new, len(trials) - new)


def _write(run: str, trial: TrackerEntry, name: str, target: str) -> Path:
    """Write one entry, and return its folder."""
    import wandb

    quiet = wandb.Settings(
        silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
    )
    writer = wandb.init(
        mode="offline",
        dir=target,
        project=run[:128],
        group=trial.label[:128],
        job_type="cell" if trial.seed is None else "trial",
        id=name,
        name=trial.name,
        config={**trial.parameters, "fedguard": {**trial.tags, "key": trial.key}},
        settings=quiet,
    )
    points: dict[int, dict[str, float]] = {}
    for measure, curve in trial.curves.items():
        for at, value in curve:
            points.setdefault(at, {})[measure] = value
    for at, values in sorted(points.items()):
        writer.log(values, step=at)
    writer.summary.update(trial.figures)
    folder = Path(writer.dir).parent
    writer.finish(0 if trial.ok else 1)
    return folder
