"""Trials of a third-party app: it runs in separate processes, which report its results as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fedguard.bench.records.record import build_record
from fedguard.bench.records.schema import Record
from fedguard.bench.running.card import threat_card
from fedguard.bench.running.code import code_of
from fedguard.bench.running.environment import environment
from fedguard.config import PlannedCell
from fedguard.metrics.flags import find_red_flags
from fedguard.metrics.trajectory import FINAL_EVALUATIONS

#: The program that runs them; it needs the app's framework.
PROGRAM = "fedguard.bridges.trial"


class Framework(NamedTuple):
    """What runs apps of a kind: its name, its package, the versions that were tried, and what installs it."""

    name: str
    package: str
    versions: tuple[str, ...]
    extra: str


FRAMEWORKS = {
    "flower": Framework("Flower", "flwr", ("1.41", "1.42"), "fedguard[flower]"),
    "nvflare": Framework("NVFlare", "nvflare", ("2.9",), "fedguard[nvflare]"),
}
#: What decides whether an app can run at all.
REHEARSED = ("framework", "app", "settings", "metric", "engine", "looks", "nodes", "malicious")
#: What is said of a trial; where it came to nothing ``refused``, ``failed``, or ``mistake``: the app lacks something.
Told = dict[str, Any]


class Apps:
    """The process that forks the trials of apps, started with the first trial; see `fedguard.bridges.trial`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._why_not: dict[str, str | None] = {}

    def run_app_trial(self, cell: PlannedCell, seed: int, folder: Path | None = None) -> Told:
        """Run a trial and return its report; pictures of reconstructions go to the run's folder."""
        return self._query_process(_build_request(cell, seed, folder))

    def why_not(self, cell: PlannedCell) -> str | None:
        """Why an app cannot run on its engine, before it does; None if it seems to. Cells of an app and observer share it."""
        asked = {**_build_request(cell, 0), "rehearsal": True}
        key = json.dumps([asked.get(name) for name in REHEARSED])
        if key not in self._why_not:
            told = self._query_process(asked)
            self._why_not[key] = None if told["status"] == "ok" else str(told["reason"])
        return self._why_not[key]

    def _query_process(self, asked: Mapping[str, Any]) -> Told:
        if why := without_framework(asked.get("framework", "flower")):
            return {"status": "mistake", "reason": why, "log": ""}
        if self._process is None:
            self._process = _start_process()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
        if line := process.stdout.readline():
            return dict(json.loads(line))
        self.close()
        why = f"the process in which apps run ended before it said anything (python -m {PROGRAM})"
        return {"status": "failed", "reason": why, "log": ""}

    def close(self) -> None:
        """End the process, and all that its trials have started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()  # waits for it, and closes the pipes
            self._process = None


def without_framework(name: str) -> str | None:
    """Why no app of a framework can run here: it is missing or has another version; None if apps can run."""
    asked = FRAMEWORKS[name]
    try:
        found = version(asked.package)
    except PackageNotFoundError:
        found = None
    if found is not None and ".".join(found.split(".")[:2]) in asked.versions:
        return None
    got = "it is not installed" if found is None else f"got {found}"
    return f"app: expected {asked.name} {' or '.join(asked.versions)}; {got}. pip install '{asked.extra}'"


def _start_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a group of its own, which it ends when this process is gone
        env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
    )


def _build_request(cell: PlannedCell, seed: int, folder: Path | None = None) -> dict[str, Any]:
    app = cell.config.app
    assert app is not None
    return {
        "app": app.path,
        "settings": app.set,
        "attack": str(cell.attack) if cell.attack else None,
        "defense": None if cell.own else str(cell.pipeline),
        # So that the same nodes are honest with and without attack.
        "f": cell.malicious if cell.attack else cell.assumed_f,
        "assumed_f": cell.assumed_f,
        "nodes": cell.config.clients.total,
        "seed": seed,
        "metric": app.metric,
        "knowledge": [name for name in cell.config.threat.knowledge if name != "defense" or not cell.own],
        "engine": app.engine,
        **({} if app.framework == "flower" else {"framework": app.framework, "malicious": app.malicious}),
        **({} if cell.inference is None else {"looks": _looks(cell, seed, folder)}),
    }


def _looks(cell: PlannedCell, seed: int, folder: Path | None) -> dict[str, Any]:
    """Who infers, as `fedguard.bridges.seen.AppObserver` has it."""
    app = cell.config.app
    assert app is not None and app.training is not None
    return {
        "attack": str(cell.inference),
        "wants": cell.config.observer.model_dump(mode="json"),
        "training": app.training.model_dump(mode="json"),
        "pictures": None if folder is None else [str(folder.absolute()), cell.id, seed],
    }


def run_app(
    cell: PlannedCell, seed: int, controls: Mapping[str, float | None], apps: Apps, folder: Path | None = None
) -> tuple[Record, str]:
    """One trial of an app, and its output if it failed; for a deployment, always its output.

    Args:
        controls: final accuracies of the control cells with the same seed, as far as known.
        folder: folder of the run, for pictures of reconstructions; None to store none.
    """
    assert cell.config.app is not None
    started = time.time()
    told = apps.run_app_trial(cell, seed, folder)
    made = {**environment("cpu"), "code": code_of(cell), "data": None, "started": started}
    if told["status"] != "ok":
        status = "refused" if told["status"] == "refused" else "failed"
        body = {
            "status": status,
            "reason": told["reason"],
            "threat_card": threat_card(cell),
            "result": None,
            "cost": None,
        }
        return build_record(cell, seed, {**body, "flags": [], "environment": made}), told["log"]
    found = told["found"]
    card = {**threat_card(cell), "worst_hostile_share": found["hostile_share"], "dissimilarity": None}
    result = {**_result(found), **_compare_controls(cell, found, controls)}
    body = {
        "status": "ok",
        "reason": None,
        "threat_card": card,
        "result": result,
        "cost": {
            "seconds": found["seconds"],
            "cpu_seconds": found["cpu_seconds"],
            "worker_peak_memory_bytes": found["memory"],
            "update_bytes_sent": found["bytes"],
            "protocol_bytes_sent": 0,
            "protocol_bytes_received": 0,
        },
        # They are of attacks on the training.
        "flags": find_red_flags(result, card if cell.inference is None else {**card, "attack": None}),
        "environment": made,
    }
    return build_record(cell, seed, body), told["log"] if cell.config.app.engine == "deployment" else ""


def _final(found: Mapping[str, Any]) -> float:
    return fmean(found["accuracy"][-FINAL_EVALUATIONS:])


def _compare_controls(
    cell: PlannedCell, found: Mapping[str, Any], controls: Mapping[str, float | None]
) -> dict[str, Any]:
    """The four controls; the cost of the defense without attack, and the effect of the attack under the defense."""
    here = ("attack" if cell.attack else "clean") + ("_mean" if cell.own else "_defense")
    names = ("clean_mean", "clean_defense", "attack_mean", "attack_defense")
    final = _final(found)
    four = {**{name: controls.get(name) for name in names}, here: final}
    if cell.own:  # the app's own strategy is what defenses are held against, and its own defense
        four |= {name.replace("_mean", "_defense"): four[name] for name in ("clean_mean", "attack_mean")}
    clean, mean = four["clean_defense"], four["clean_mean"]
    return {
        "controls": four,
        "accuracy_drop": clean - final if cell.attack and clean is not None else None,
        "robustness_tax": mean - clean if clean is not None and mean is not None else None,
    }


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    """The result in the record of an app's run; null for everything that an app does not report."""
    accuracy = found["accuracy"]
    return {
        "final_accuracy": _final(found),
        "best_accuracy": max(accuracy),
        "worst_class_accuracy": None,
        "class_accuracy": [],
        "diverged": False,
        "curve": {
            "round": found["round"],
            "accuracy": accuracy,
            "backdoor": [None] * len(accuracy),
            "loss": [one if one is not None and abs(one) < 1e300 else None for one in found["loss"]],
        },
        "rounds": {
            "total": found["rounds"],
            "updates": found["updates"],
            "not_finite": found["dropped"],
            "abandoned": len(found["abandoned"]),
            "why_abandoned": next(iter(found["abandoned"]), None),
            "worst_hostile_share": found["hostile_share"],
            "outvoted": found["outvoted"],
            "silent": found["lost"],
        },
        "aggregate": {"kappa": None, "cosine": None, "hostile_length": None},
        "filter": None,
        "attack_notes": {},
        "app": {"metric": found["metric"], "measured_by": found["where"], "malicious": found["malicious"]}
        | _list_lost_nodes(found)
        | ({"misfit": found["misfit"]} if found.get("misfit") is not None else {})
        | found.get("app", {}),
        "chance": None,
        "minority": [],
        "secure_aggregation": None,
        "privacy": None,
        "references": {},
        "inference": found.get("inference"),
        "attack_success": None,
        "attack_success_raw": None,
        "attack_success_clean": None,
        "durability": None,
    }


def _list_lost_nodes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes that stopped answering, and how their processes ended; empty if there are none."""
    gone, ended = found.get("gone", {}), found.get("ended", {})
    lost = [{"node": int(node), "round": number, "how": ended.get(node)} for node, number in gone.items()]
    return {"lost": lost} if lost else {}
