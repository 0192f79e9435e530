"""An NVFlare job's folder: its server's configuration, why it is refused, and a copy with FedGuard's controller."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.fuel.utils.config_factory import ConfigFactory

from fedguard.errors import ConfigError, NotAllowed

SERVER = "config_fed_server"
CLIENT = "config_fed_client"
#: NVFlare's name for a job's app that is everywhere.
EVERYWHERE = "@ALL"
#: The module in the copy of a job, and its class.
MODULE, CONTROLLER = "fedguard_place", "Controller"

#: Words of the path of a class, and why attack and rule have no place in a job that names it.
REFUSED = {
    "cyclic": "sites pass the model on from one to the next, and no server aggregates",
    "swarm": "sites aggregate among themselves, and no server does",
    "homomorphic_encryption": "updates are encrypted, and the server sees none of them",
    "app_opt.he": "updates are encrypted, and the server sees none of them",
    "splitnn": "sites send activations and gradients of a split network, and no updates of a model",
    "xgboost": "trees are no vectors, and no rule of the catalog aggregates them",
    "psi": "sites intersect their identifiers, and no model is trained",
    "scaffold": "its control variates travel beside the updates, and attack and rule would leave them as they are",
    "scatter_and_gather": "its results go to an aggregator component one by one. Export the job from a FedAvg recipe",
    "lr.fedavg": "sites send gradients and Hessians of Newton's method, and no updates of a model",
    "statistics": "sites send statistics, and no model is trained",
}
#: Controllers that may stand beside the one that trains, since they aggregate no updates.
BESIDE = ("cross_site_model_eval", "cross_site_eval", "global_model_eval", "initialize_global_weights")


@dataclass(frozen=True)
class NVFlareJob:
    """A job's folder as its files describe it; nothing of it is changed.

    Attributes:
        folder: where its meta.json is.
        app: name of the folder of its server's app.
        sites: names of its sites that the job deploys to; empty if it deploys to all.
        number: which of the server's workflows trains.
        server: the server's configuration, with ``config`` over the arguments of that workflow.
        config: the arguments of the workflow that trains.
    """

    folder: Path
    app: str
    sites: tuple[str, ...]
    number: int
    server: Mapping[str, Any]
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path, settings: Mapping[str, Any] | None = None) -> NVFlareJob:
        """Read a job's folder.

        Args:
            settings: over the arguments of the controller that trains.

        Raises:
            ConfigError: there is no job, or its files are damaged.
            NotAllowed: attack and rule have no place in it.
        """
        path = Path(folder).resolve()
        deployed = _configuration(path, "meta", "deploy_map")["deploy_map"]
        apps = [name for name, where in deployed.items() if {EVERYWHERE, "server"} & {*where}]
        if len(apps) != 1:
            raise ConfigError(
                f"{path}/meta: deploy_map: expected one app for the server; got {', '.join(apps) or 'none'}."
            )
        named = {site for where in deployed.values() for site in where} - {EVERYWHERE, "server"}
        server = _configuration(path / apps[0] / "config", SERVER, "workflows")
        for name in deployed:
            if reason := _refusal([server, *_clients(path / name / "config")]):
                raise NotAllowed(f"{path}: {reason}.")
        number = _training_workflow(path / apps[0], server["workflows"])
        config = {**(server["workflows"][number].get("args") or {}), **(settings or {})}
        if config.get("enable_tensor_disk_offload"):
            raise NotAllowed(
                f"{path}: its server reads results from the disk one by one, and attack and rule need all of a round at once. "
                "Set enable_tensor_disk_offload to false in app.set."
            )
        return cls(path, apps[0], tuple(sorted(named)), number, server, config)

    @property
    def controller(self) -> str:
        """The path of the class that trains."""
        return str(_class_path(self.server["workflows"][self.number]))

    def digest(self) -> str:
        """SHA-256 of all of the folder's files, with their names."""
        found = hashlib.sha256()
        for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            if "__pycache__" not in file.parts:
                name = str(file.relative_to(self.folder)).encode()
                found.update(b"%d %s %s" % (len(name), name, hashlib.sha256(file.read_bytes()).digest()))
        return found.hexdigest()

    def names(self, sites: int) -> tuple[str, ...]:
        """The names of the sites.

        Raises:
            ConfigError: another number than those the job deploys to.
        """
        if self.sites and len(self.sites) != sites:
            raise ConfigError(
                f"{self.folder}: app.sites: expected the {len(self.sites)} of the job's deploy_map; got {sites}."
            )
        return self.sites or tuple(f"site-{number}" for number in range(1, sites + 1))

    def copy(self, to: Path, request: Path) -> Path:
        """A copy of the folder whose controller is FedGuard's subclass, which reads its request from a file."""
        made = to / self.folder.name
        shutil.copytree(self.folder, made, ignore=shutil.ignore_patterns("__pycache__"))
        for bundled in made.glob("*/custom/fedguard"):
            # An export bundles a part of FedGuard's own files, which would hide the package that runs here
            shutil.rmtree(bundled)
        app = made / self.app
        module, _, name = self.controller.rpartition(".")
        workflows = [dict(one) for one in self.server["workflows"]]
        workflow = {key: value for key, value in workflows[self.number].items() if key not in ("name", "class_path")}
        workflows[self.number] = {**workflow, "path": f"{MODULE}.{CONTROLLER}", "args": self.config}
        for old in (app / "config").glob(f"{SERVER}.*"):
            old.unlink()
        (app / "config" / f"{SERVER}.json").write_text(json.dumps({**self.server, "workflows": workflows}))
        (app / "custom").mkdir(exist_ok=True)
        (app / "custom" / f"{MODULE}.py").write_text(
            f"from {module} import {name}\n\nfrom fedguard.bridges.nvflare.controller import guard_controller\n\n"
            f"{CONTROLLER} = guard_controller({name}, {str(request)!r})\n"
        )
        return made


def _configuration(folder: Path, name: str, needed: str) -> dict[str, Any]:
    """A configuration file in whichever of NVFlare's formats.

    Raises:
        ConfigError: it is missing, cannot be parsed, or lacks what is needed.
    """
    try:
        found = ConfigFactory.load_config(f"{name}.json", [str(folder)])
        told = None if found is None else found.to_dict()
    except Exception as error:  # each parser raises its own
        raise ConfigError(f"{folder}/{name}: cannot be read: {' '.join(str(error).split())[:200]}.") from None
    if told is None:
        raise ConfigError(
            f"{folder}: expected {name}.json of an NVFlare job; there is none. Name the folder that a recipe exported."
        )
    wanted, kind = (dict, "mapping") if needed == "deploy_map" else (list, "list")
    got = told.get(needed) if isinstance(told, dict) else told
    if not isinstance(told, dict) or not isinstance(got, wanted) or not got:
        raise ConfigError(f"{folder}/{name}: {needed}: expected a {kind} that is not empty; got {got!r:.80}.")
    return told


def _clients(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The clients' configurations in an app's folder."""
    for name in sorted({path.stem for path in folder.glob(f"{CLIENT}*") if path.is_file()}):
        yield _configuration(folder, name, "executors")


def _class_path(component: Mapping[str, Any]) -> str | None:
    return component.get("path") or component.get("class_path") or component.get("name")


def _paths(value: Any) -> Iterator[str]:
    """Paths of all classes that a configuration names."""
    if isinstance(value, Mapping):
        if isinstance(path := value.get("path"), str):
            yield path
        for inner in value.values():
            yield from _paths(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner)


def _refusal(configurations: list[Mapping[str, Any]]) -> str | None:
    """Why attack and rule have no place in a job, by the classes that it names; None if they may have."""
    for path in (path for one in configurations for path in _paths(one)):
        if not path.startswith("nvflare.") or any(word in path for word in BESIDE):
            continue
        for word, reason in REFUSED.items():
            if word in path.lower():
                return f"{path.rpartition('.')[2]}: {reason}"
    return None


def _training_workflow(app: Path, workflows: list[Any]) -> int:
    """The number of the workflow whose controller is FedAvg or a subclass of it.

    Raises:
        ConfigError: a controller cannot be imported.
        NotAllowed: there is no such workflow, or there are several.
    """
    custom = str(app / "custom")
    if custom not in sys.path:
        sys.path.insert(0, custom)
    found = []
    for number, workflow in enumerate(workflows):
        path = _class_path(workflow) if isinstance(workflow, Mapping) else None
        if not isinstance(path, str):
            raise ConfigError(f"{app}: workflows[{number}]: expected the path of a class; got {workflow!r:.80}.")
        module, _, name = path.rpartition(".")
        try:
            kind = getattr(importlib.import_module(module), name)
        except Exception as error:  # whatever a user's module raises
            raise ConfigError(f"{app}: {path} cannot be imported: {type(error).__name__}: {error}.") from error
        if isinstance(kind, type) and issubclass(kind, FedAvg):
            found.append(number)
        elif not any(word in path for word in BESIDE):
            raise NotAllowed(
                f"{app.parent}: {name}: attack and rule have a place in FedAvg and its subclasses alone, which hand over "
                "results where they are aggregated."
            )
    if len(found) != 1:
        raise NotAllowed(f"{app.parent}: expected one workflow that is FedAvg or a subclass; got {len(found)}.")
    return found[0]
