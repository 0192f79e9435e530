"""Attacks and defenses over somebody's Flower app: a matrix, several seeds, and records as those of a suite."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import yaml

from fedguard.bench.records.record import UNITS
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.bench.running.card import acts_on
from fedguard.bench.running.code import own_code
from fedguard.bench.running.environment import environment
from fedguard.config.cells import RESULTS_VERSION
from fedguard.config.sections import Knowledge
from fedguard.contracts import PoisonAttack, Sight
from fedguard.errors import ConfigError, StoreError
from fedguard.flower.inline import FlowerApp
from fedguard.metrics.flags import raised
from fedguard.metrics.trajectory import FINAL_EVALUATIONS
from fedguard.registry import installed

#: The defense that is the app's own strategy, whatever it does.
OWN = "own"

#: Told of each trial that has ended: how many have, of how many, and which.
After = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Case:
    """A cell: an app under one attack with one defense.

    Attributes:
        attack, defense: specs; None for no attack, and for the app's own strategy alone.
    """

    app: FlowerApp
    attack: str | None
    defense: str | None
    f: int
    nodes: int
    metric: str | None
    knowledge: tuple[str, ...] | None

    @cached_property
    def config(self) -> dict[str, Any]:
        """As a record holds it."""
        known = installed()
        rule = [{"name": OWN}] if self.defense is None else [_named("defense", one) for one in self.defense.split(">>")]
        name = known.build("attack", self.attack) if self.attack else None
        return {
            "task": {
                "data": {"name": "flower", "app": self.app.folder.name, **self.app.config},
                "partition": {"name": "app"},
                "model": {"name": "app"},
                "partition_seed": None,
            },
            "clients": {"total": self.nodes, "malicious": self.f if self.attack else 0, "assumed_f": self.f},
            "training": {"rounds": 0, "algorithm": "app"},
            "threat": {"knowledge": list(self.sees)},
            "architecture": "flower",
            "metric": self.metric,
            "attack": {"name": name.name, **name.parameters()} if name else "none",
            "defense": rule,
        }

    @property
    def sees(self) -> tuple[str, ...]:
        """What the malicious nodes are granted; the rule only where it is one of the catalogue."""
        return tuple(one for one in self.knowledge or get_args(Knowledge) if one != "rule" or self.defense is not None)

    @cached_property
    def id(self) -> str:
        """Twelve digits of the digest of the configuration."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        return f"{self.attack or 'no attack'} against {self.defense or OWN}"

    def card(self) -> dict[str, Any]:
        """The threat card."""
        known = installed()
        attack: PoisonAttack | None = known.build("attack", self.attack) if self.attack else None
        pipeline = known.pipeline(self.defense) if self.defense else None
        granted = Sight.parse(self.sees)
        shown = Sight.EACH_UPDATE | Sight.MODEL
        return {
            "in_words": (
                f"{self.f} of {self.nodes} nodes of the Flower app {self.app.folder.name} collude; together they see "
                f"{granted.words()}."
                if attack
                else "Nobody is malicious."
            ),
            "attack": str(attack) if attack else None,
            "goal": attack.goal if attack else None,
            "acts_on": acts_on(attack) if attack else [],
            "attack_sees": granted.names() if attack else [],
            "observer": None,
            "granted": granted.names() if attack else [],
            "collusion": attack is not None and self.f > 1,
            "attacker_data": "the malicious nodes' own" if attack else None,
            "first_round": 1 if attack else None,
            "last_round": None,
            "every": 1 if attack else None,
            "clients": self.nodes,
            "per_round": self.nodes,
            "sampling": "the app's",
            "true_f": self.f if attack else 0,
            "told_f": self.f,
            "f_known": True,
            "rows": self.nodes,
            "told_per_round": self.f,
            "defense": str(pipeline) if pipeline else OWN,
            "rule_needs": {one.name: [way.names() for way in one.needs] for one in pipeline.stages} if pipeline else {},
            "server_sees": shown.names(),
            "server_shown": shown.names(),
            "unproven": pipeline.unproven(self.nodes, self.f) if pipeline else [],
            "root_data": None,
            "partition": "the app's",
            "architecture": "flower",
            "algorithm": "the app's",
            "secure_aggregation": "off",
            "protocol": None,
            "privacy": "none",
            "noise": None,
            "epsilon": None,
            "epsilon_note": "what the app does for privacy is not looked at, and no guarantee is stated",
        }


def _named(kind: str, spec: str) -> dict[str, Any]:
    one = installed().build(kind, spec.strip())
    return {"name": one.name, **one.parameters()}


@dataclass(frozen=True)
class Check:
    """What is to be run of an app.

    Attributes:
        app: its folder.
        attacks, defenses: specs; no attack and the app's own strategy are always among them.
        f, nodes: malicious nodes, and all.
        seeds: 0 ... seeds - 1.
        settings: over the app's run configuration.
        metric: how the app calls its accuracy; None to find it.
        knowledge: what malicious nodes see.
    """

    app: str | Path
    attacks: Sequence[str] = ()
    defenses: Sequence[str] = ()
    f: int = 1
    nodes: int = 10
    seeds: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    metric: str | None = None
    knowledge: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.f < self.nodes:
            raise ConfigError(f"--malicious: expected from 0 to {self.nodes - 1} of {self.nodes} nodes; got {self.f}.")
        if self.seeds < 1:
            raise ConfigError(f"--seeds: expected 1 or more; got {self.seeds}.")
        for case in self.cases:
            case.card()  # raises for what the catalogue does not know

    @cached_property
    def cases(self) -> list[Case]:
        """The cells, attack by attack; without attack first."""
        read = FlowerApp.read(self.app, self.settings)
        attacks: list[str | None] = [None, *(one for one in self.attacks if one != "none")]
        defenses: list[str | None] = [None, *(one for one in self.defenses if one not in (OWN, "none"))]
        return [
            Case(read, attack, defense, self.f, self.nodes, self.metric, self.knowledge)
            for attack in dict.fromkeys(attacks)
            for defense in dict.fromkeys(defenses)
        ]

    def run(
        self, folder: RunFolder, *, jobs: int | None = None, fresh: bool = False, after: After = lambda *_: None
    ) -> Run:
        """Run what is missing, each trial in a process of its own, and open the result.

        Args:
            folder: of the run; what is stored there of the same cells, app and code is kept.
            jobs: processes; by default one per core.
            fresh: run everything again.

        Raises:
            ConfigError: what the app lacks, as found by its first run.
            StoreError: the folder cannot be written.
        """
        folder.create()
        with folder.lock():
            self._write_manifest(folder)
            asked = [(case, seed) for seed in range(self.seeds) for case in self.cases]
            missing = [one for one in asked if fresh or not self._stored(folder, *one)]
            done = len(asked) - len(missing)
            with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
                running = {pool.submit(_ran, case, seed, folder): (case, seed) for case, seed in missing}
                try:
                    for number, ended in enumerate(as_completed(running), done + 1):
                        case, seed = running[ended]
                        folder.write(self._record(case, seed, ended.result()))
                        after(number, len(asked), f"{case.label}, seed {seed}")
                except BaseException:
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
            self._compare(folder)
        return Run(folder, folder.manifest())

    @cached_property
    def code(self) -> dict[str, str]:
        """Digests of FedGuard and of the app."""
        digest = hashlib.sha256()
        folder = Path(self.app)
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
        return {"fedguard": own_code(), "app": digest.hexdigest()[:16]}

    def _stored(self, folder: RunFolder, case: Case, seed: int) -> bool:
        found = folder.read(case.id, seed)
        return found is not None and found["status"] != "failed" and found["environment"].get("code") == self.code

    def _write_manifest(self, folder: RunFolder) -> None:
        now = time.time()
        try:
            created = folder.manifest()["created"]
        except StoreError:  # the first run into this folder
            created = now
        manifest = {
            "schema": 1,
            "name": folder.path.name,
            "folder": str(Path(self.app).resolve()),
            "fedguard": version("fedguard"),
            "results_version": RESULTS_VERSION,
            "created": created,
            "started": now,
            "seeds": list(range(self.seeds)),
            "swept": ["attack", "defense"],
            "positions": [
                {"cell": case.id, "swept": {"attack": case.attack or "none", "defense": case.defense or OWN}}
                for case in self.cases
            ],
            "corners": [],
            "tuning": None,
            "ensembles": [],
        }
        told = {
            "flower": {
                "app": str(Path(self.app).resolve()),
                "attack": list(self.attacks),
                "defense": list(self.defenses),
                "malicious": self.f,
                "nodes": self.nodes,
                "seeds": self.seeds,
                "set": dict(self.settings),
                "metric": self.metric,
            }
        }
        folder.write_manifest(manifest, yaml.safe_dump(told, sort_keys=False))

    def _record(self, case: Case, seed: int, told: Mapping[str, Any]) -> Any:
        """The record of a trial."""
        head = {"schema": 1, "cell": case.id, "seed": seed, "label": case.label, "results_version": RESULTS_VERSION}
        made = {**environment("cpu"), "code": self.code, "data": None, "started": told["started"]}
        if told["status"] != "ok":
            body = {
                "status": told["status"],
                "reason": told["reason"],
                "threat_card": case.card(),
                "result": None,
                "cost": None,
            }
            return {**head, **body, "flags": [], "environment": made, "units": UNITS, "config": case.config}
        found = told["found"]
        card = {**case.card(), "worst_hostile_share": found["hostile_share"], "dissimilarity": None}
        result = _result(found)
        cost = {
            "seconds": found["seconds"],
            "cpu_seconds": found["cpu_seconds"],
            "worker_peak_memory_bytes": found["memory"],
            "update_bytes_sent": found["bytes"],
            "protocol_bytes_sent": 0,
            "protocol_bytes_received": 0,
        }
        config = {**case.config, "metric": found["metric"], "measured_by": found["where"]}
        config["training"] = {**config["training"], "rounds": found["rounds"]}
        body = {"status": "ok", "reason": None, "threat_card": card, "result": result, "cost": cost}
        return {**head, **body, "flags": raised(result, card), "environment": made, "units": UNITS, "config": config}

    def _compare(self, folder: RunFolder) -> None:
        """Set beside each record what its cell reaches without attack, and the app's own strategy under it."""
        named = {(case.attack, case.defense): case.id for case in self.cases}
        for case in self.cases:
            for seed in range(self.seeds):
                record: Any = folder.read(case.id, seed)
                if record is None or record["status"] != "ok":
                    continue

                def final(attack: str | None, defense: str | None, seed: int = seed) -> float | None:
                    other = folder.read(named[attack, defense], seed)
                    return other["result"]["final_accuracy"] if other is not None and other["status"] == "ok" else None

                corners = {
                    "clean_mean": final(None, None),
                    "clean_defense": final(None, case.defense),
                    "attack_mean": final(case.attack, None) if case.attack else None,
                    "attack_defense": final(case.attack, case.defense) if case.attack else None,
                }
                result, clean = record["result"], corners["clean_defense"]
                result["corners"] = corners
                if case.attack and clean is not None:
                    result["accuracy_drop"] = clean - result["final_accuracy"]
                if clean is not None and corners["clean_mean"] is not None:
                    result["robustness_tax"] = corners["clean_mean"] - clean
                folder.write({key: value for key, value in record.items() if key != "sha256"})  # type: ignore[arg-type]


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of an app's run; null is what an app does not tell."""
    accuracy = found["accuracy"]
    return {
        "final_accuracy": fmean(accuracy[-FINAL_EVALUATIONS:]),
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
            "silent": 0,
        },
        "aggregate": {"kappa": None, "cosine": None, "hostile_length": None},
        "filter": None,
        "attack_notes": {},
        "chance": None,
        "minority": [],
        "secure_aggregation": None,
        "privacy": None,
        "corners": dict.fromkeys(("clean_mean", "clean_defense", "attack_mean", "attack_defense")),
        "accuracy_drop": None,
        "robustness_tax": None,
        "references": {},
        "inference": None,
        "attack_success": None,
        "attack_success_raw": None,
        "attack_success_clean": None,
        "durability": None,
    }


def _ran(case: Case, seed: int, folder: RunFolder) -> dict[str, Any]:
    """One trial, in a process of its own: what it says; a refused or failed one says why.

    Raises:
        ConfigError: what the app lacks.
    """
    started = time.time()
    asked = {
        "app": str(case.app.folder),
        "settings": case.app.config,
        "attack": case.attack,
        "defense": case.defense,
        "f": case.f,
        "nodes": case.nodes,
        "seed": seed,
        "metric": case.metric,
        "knowledge": case.sees,
    }
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "told.json"
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "fedguard.flower.trial", str(out)],
            input=json.dumps(asked).encode(),
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
            check=False,
        )
        told: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    log = folder.log_path(case.id, seed)
    said = ran.stdout + ran.stderr
    if told.get("status") == "mistake":
        raise ConfigError(told["reason"])
    if not told or (told["status"] == "ok" and told["found"]["raised"]):
        log.write_bytes(said + "\n".join(told.get("found", {}).get("raised", ())).encode())
        lines = (told["found"]["raised"][0] if told else said.decode(errors="replace")).strip().splitlines()
        reason = f"the app raised: {lines[-1] if lines else 'nothing said'} (log: {log})"
        return {"status": "failed", "reason": reason, "started": started}
    return {**told, "started": started}


def check(
    app: str | Path,
    *,
    attacks: Sequence[str] = (),
    defenses: Sequence[str] = (),
    f: int = 1,
    nodes: int = 10,
    seeds: int = 3,
    settings: Mapping[str, Any] | None = None,
    metric: str | None = None,
    name: str | None = None,
    store: str | Path = "runs",
    jobs: int | None = None,
    fresh: bool = False,
    after: After = lambda *_: None,
) -> Run:
    """Attack and defend a Flower app, each trial in a process of its own, and open the run; see `Check`.

    Raises:
        ConfigError: no such app, attack or defense; or the app measures nothing.
        StoreError: the store cannot be written.
    """
    asked = Check(app, attacks, defenses, f, nodes, seeds, settings or {}, metric)
    return asked.run(RunFolder(Path(store) / (name or Path(app).resolve().name)), jobs=jobs, fresh=fresh, after=after)


def below(run: Run, floor: float) -> Iterator[str]:
    """Cells whose mean accuracy is below a floor, in words; and those that did not run."""
    for line in run.manifest["positions"]:
        found = [run.ran[line["cell"], seed] for seed in run.seeds if (line["cell"], seed) in run.ran]
        words = f"{line['swept']['attack']} against {line['swept']['defense']}"
        if not found:
            yield f"{words}: not judged, no trial ran"
        elif (mean := fmean(one["result"]["final_accuracy"] for one in found)) < floor:
            yield f"{words}: {100 * mean:.1f} %, below {100 * floor:.1f} %"
