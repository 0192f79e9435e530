"""MLflow: an experiment for a run, a run for each cell, and one nested in it for each trial."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedguard.bench.results.tracking.trials import ExportCount, TrackerEntry
from fedguard.errors import MissingExtra, StoreError, oneline

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: The tags by which an earlier export is found; the second is set last, when all else is written.
KEY, DIGEST = "fedguard.key", "fedguard.digest"
#: Characters of a parameter or tag, and parameters and metrics of one request, which MLflow takes.
LONGEST, PARAMETERS, METRICS = 5000, 100, 1000
#: Default settings of MLflow, unless the user sets others: no usage statistics, and a short wait for an absent server.
UNLESS_SAID = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}


def write(run: str, trials: Sequence[TrackerEntry], target: str) -> ExportCount:
    """Write to a tracking server, or to an SQLite file.

    Runs that have changed since an earlier export are deleted first, as MLflow deletes: they can be restored there.

    Args:
        target: an address such as ``http://127.0.0.1:5000`` or ``sqlite:///mlflow.db``, or the path of an SQLite file.

    Raises:
        MissingExtra: MLflow is not installed, or not the packages for its SQLite files.
        StoreError: MLflow rejects the export.
    """
    for name, value in UNLESS_SAID.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise MissingExtra("--mlflow", "mlflow with sqlalchemy", "tracking") from None
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    try:
        return _write(MlflowClient(address(target)), run, trials)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise StoreError(f"--mlflow {target}: {oneline(error)[:300]}.") from None


def address(target: str) -> str:
    """A path becomes the address of an SQLite file."""
    return target if "://" in target else f"sqlite:///{Path(target).absolute()}"


def _write(client: MlflowClient, run: str, trials: Sequence[TrackerEntry]) -> ExportCount:
    found = client.get_experiment_by_name(run)
    experiment = client.create_experiment(run) if found is None else found.experiment_id
    ids: dict[str, str] = {}
    new = 0
    for trial in trials:
        parent = None if trial.seed is None else ids[trial.cell]
        earlier = client.search_runs([experiment], f"tags.`{KEY}` = '{trial.key}'")
        same = [one.info.run_id for one in earlier if one.data.tags.get(DIGEST) == trial.digest]
        ids[trial.key] = same[0] if same else _create(client, experiment, trial)
        new += not same
        for one in earlier:
            if one.info.run_id != ids[trial.key]:
                client.delete_run(one.info.run_id)
        if parent is not None:
            client.set_tag(ids[trial.key], "mlflow.parentRunId", parent)
    return ExportCount(new, len(trials) - new)


def _create(client: MlflowClient, experiment: str, trial: TrackerEntry) -> str:
    from mlflow.entities import Metric, Param, RunTag

    began = int(1000 * trial.started)
    ended = began + int(1000 * trial.seconds)
    tags = {f"fedguard.{_name(name)}": text[:LONGEST] for name, text in trial.tags.items()}
    made = client.create_run(experiment, began, tags | {KEY: trial.key}, trial.name)
    run: str = made.info.run_id
    params = [Param(_name(key), text[:LONGEST]) for key, text in trial.parameters.items()]
    for first in range(0, len(params), PARAMETERS):
        client.log_batch(run, params=params[first : first + PARAMETERS])
    points = [Metric(_name(name), value, ended, 0) for name, value in trial.figures.items()]
    points += [Metric(_name(name), value, ended, at) for name, curve in trial.curves.items() for at, value in curve]
    for first in range(0, len(points), METRICS):
        client.log_batch(run, metrics=points[first : first + METRICS])
    client.set_terminated(run, "FINISHED" if trial.ok else "FAILED", ended)
    client.log_batch(run, tags=[RunTag(DIGEST, trial.digest)])
    return run


def _name(text: str) -> str:
    """A name in letters that MLflow takes."""
    return re.sub(r"[^\w\-./]", "_", text, flags=re.ASCII)
