"""Export of a run to experiment trackers: a module for each tracker, over `trials.collect_trials`."""

from __future__ import annotations

from collections.abc import Mapping

from fedguard.bench.results.run import Run
from fedguard.bench.results.tracking import mlflow, tensorboard, wandb
from fedguard.bench.results.tracking.trials import ExportCount, Tracker, collect_trials

#: What a run can be written to, by the option of `fedguard export`.
TRACKERS: Mapping[str, Tracker] = {
    "mlflow": mlflow.write,
    "tensorboard": tensorboard.write,
    "wandb": wandb.write,
}


def track(run: Run, tracker: str, target: str) -> ExportCount:
    """Write the trials and cells of a run to a tracker; entries that it already has stay as they are.

    Raises:
        MissingExtra: the tracker's package is not installed.
        StoreError: the target cannot be written or reached.
    """
    return TRACKERS[tracker](run.name, collect_trials(run), target)
