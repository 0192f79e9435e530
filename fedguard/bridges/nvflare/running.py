"""A job in NVFlare's simulator: what `fedguard.bridges.trial` asks of each framework."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedguard.bridges.jobs import TrialRequest, read_curve
from fedguard.bridges.nvflare.ending import end_together
from fedguard.bridges.nvflare.job import NVFlareJob
from fedguard.errors import ConfigError, FedGuardError, NotAllowed

#: The simulator's program.
SIMULATOR = "nvflare.private.fed.app.simulator.simulator"
#: What the controller counts, in the words of `fedguard.bridges.flower.serving.serve_app`.
COUNTED = (
    "malicious",
    "rounds",
    "updates",
    "hostile_share",
    "outvoted",
    "dropped",
    "lost",
    "gone",
    "abandoned",
    "bytes",
)
ADVICE = "Let its script send flare.FLModel(..., metrics={'accuracy': ...}) with each result."


def read(asked: TrialRequest) -> NVFlareJob:
    """The job with the settings of its controller."""
    return NVFlareJob.read(asked.app, asked.settings)


def rehearse(asked: TrialRequest) -> None:
    """Check that a job can be read and that attack and rule have a place in it.

    Raises:
        ConfigError: the job is damaged, or has other sites.
        NotAllowed: attack and rule have no place in it.
    """
    names = read(asked).names(asked.nodes)
    if unknown := sorted(set(asked.malicious or ()) - set(names)):
        raise ConfigError(f"app.malicious: expected some of {', '.join(names)}; got {', '.join(unknown)}.")


def run_simulated(asked: TrialRequest) -> dict[str, Any]:
    """Run a trial on a copy of the job, a process for each site.

    Returns:
        as `fedguard.bridges.flower.serving.serve_app`, and app: what the record says of the job.

    Raises:
        ConfigError: the job measures nothing, or stopped.
        NotAllowed: attack or rule cannot be used there.
    """
    rehearse(asked)
    job = read(asked)
    with tempfile.TemporaryDirectory(prefix="fedguard-nvflare-") as folder:
        told = simulate(job, asked, Path(folder))
    if told["reason"] is not None:
        raise (NotAllowed if told["reason"]["refused"] else ConfigError)(told["reason"]["reason"])
    if told["panic"] is not None:
        raise FedGuardError(f"{job.folder}: the job stopped: {told['panic']}")
    curve = [(number, found) for number, found in told["curve"]]
    app = {
        "framework": "nvflare",
        "version": version("nvflare"),
        "job": job.digest(),
        "controller": job.controller,
        "place": "server, where the results of a round are aggregated",
        "params_type": told["params_type"],
        "weights": told["weights"],
        "sites": list(job.names(asked.nodes)),
    }
    kept = {key: told[key] for key in COUNTED}
    found = read_curve(curve, asked.metric, job.folder, ADVICE)
    return {**found, **kept, "where": "the honest sites", "raised": [], "app": app}


def simulate(job: NVFlareJob, asked: TrialRequest, folder: Path) -> dict[str, Any]:
    """What the controller tells of a run in an empty folder; its first model and its last are kept there.

    Raises:
        FedGuardError: the simulator ended before the controller reported anything.
    """
    names, told, request = job.names(asked.nodes), folder / "told.json", folder / "asked.json"
    request.write_text(json.dumps({"asked": asdict(asked), "told": str(told)}))
    copy = job.copy(folder / "job", request)
    sites = ["-c", ",".join(names), "-t", str(len(names))]
    command = [sys.executable, "-m", SIMULATOR, str(copy), "-w", str(folder / "workspace"), *sites]
    with end_together() as mark:
        # Relative entries are of the folder that this process was started in
        paths = [str(Path(one).resolve()) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        environment = {
            **os.environ,
            **mark,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "FEDGUARD_SEED": str(asked.seed),
        }
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    said = done.stdout + done.stderr
    sys.stderr.write(said)  # the trial's log
    if not told.is_file():
        errors = [line for line in said.splitlines() if re.search(r" - (ERROR|CRITICAL) - |Error: ", line)]
        why = re.sub(r"^.* - (ERROR|CRITICAL) - ", "", errors[0]) if errors else f"exit code {done.returncode}"
        raise FedGuardError(f"{job.folder}: the simulator ended before the job trained: {why}")
    return dict(json.loads(told.read_text()))


#: Where a trial may run.
ENGINES: dict[str, Callable[[TrialRequest], dict[str, Any]]] = {"inline": run_simulated}
