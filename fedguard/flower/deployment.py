"""An app deployed on this machine: a SuperLink and SuperNodes, processes as in anybody's federation, and `flwr run`.

All listen on 127.0.0.1 alone, and without TLS (`--insecure`). The app travels as Flower's bundle, with one module more that
wraps its two sides; what it came to comes back as a file of JSON.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
from flwr.cli.build import build_fab_from_disk

from fedguard.errors import ConfigError, NotAllowed
from fedguard.flower.app import FlowerApp
from fedguard.flower.processes import Processes
from fedguard.flower.sides import ASKED, TOLD
from fedguard.flower.watched import Asked

#: The module that is put beside the app's own, and what it says.
MODULE = "fedguard_check"
_WRAPPED = """from pathlib import Path

from fedguard.flower.sides import client_side, server_side

server = server_side(Path(__file__).parent, Path({home!r}))
client = client_side(Path(__file__).parent, Path({home!r}))
"""
#: Under which name `flwr run` knows the SuperLink.
HERE = "here"
#: Seconds between questions how the run is, which cost the start of a process.
PATIENCE = 60.0


def run_deployed(asked: Asked) -> dict[str, Any]:
    """Run a trial on a SuperLink with as many SuperNodes as there are nodes, each a process of this machine.

    A SuperNode that dies is lost to its round and those that follow, with which Flower goes on once the node's heartbeat is
    missed; what was lost is counted, and told with how the process ended. Where the app's strategy waits for more nodes than
    are left, and where the SuperLink dies, the trial ends.

    Raises:
        ConfigError: a process does not start or dies, Flower refuses the app, or what `served` raises.
        NotAllowed: attack or rule have no place there.
    """
    read = asked.read
    with tempfile.TemporaryDirectory(prefix="fedguard-flower-") as folder, Processes(Path(folder)) as processes:
        home = Path(folder)
        _bundle(read, home)
        port = processes.superlink()
        for number in range(asked.nodes):
            processes.supernode(number, asked.nodes, port)
        nodes = {processes.node_id(number): number for number in range(asked.nodes)}
        parts = {"server": read.server, "client": read.client, "config": read.config}
        (home / ASKED).write_text(json.dumps({"asked": asdict(asked), "parts": parts, "nodes": list(nodes.items())}))
        (home / "config.toml").write_text(f'[superlink.{HERE}]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
        found = _told(processes, home, str(processes.flwr("run", str(home / "app"), HERE)["run-id"]))
        ended = {
            str(number): how for number in range(asked.nodes) if (how := processes.how_ended(f"supernode-{number}"))
        }
    if "found" in found:
        return {**found["found"], "ended": ended}
    died = "".join(f" The process of node {number} {how}." for number, how in ended.items())
    raise (NotAllowed if found["refused"] else ConfigError)(found["reason"] + died)


def require_deployable(read: FlowerApp) -> None:
    """Raises ConfigError if Flower would not take the app."""
    with tempfile.TemporaryDirectory(prefix="fedguard-flower-") as folder:
        _bundle(read, Path(folder))


def _bundle(read: FlowerApp, home: Path) -> None:
    """A copy of the app whose two sides are the wrapped ones.

    Raises:
        ConfigError: Flower would not take it.
    """
    app = home / "app"
    shutil.copytree(read.folder, app, ignore=shutil.ignore_patterns("__pycache__", ".venv", ".git"))
    (app / f"{MODULE}.py").write_text(_WRAPPED.format(home=str(home)))
    project = tomllib.loads((app / "pyproject.toml").read_text())
    project["tool"]["flwr"]["app"]["components"] = {"serverapp": f"{MODULE}:server", "clientapp": f"{MODULE}:client"}
    (app / "pyproject.toml").write_text(tomli_w.dumps(project))
    try:
        build_fab_from_disk(app)
    except ValueError as error:
        raise ConfigError(f"{read.folder}: Flower does not deploy it: {' '.join(str(error).split())}") from None


def _told(processes: Processes, home: Path, run: str) -> dict[str, Any]:
    """Wait for what the server's side writes at its end.

    Raises:
        ConfigError: it ended without a word, or its SuperLink did.
    """
    asked = time.monotonic()
    while not (home / TOLD).exists():
        processes.check("superlink")
        if time.monotonic() - asked > PATIENCE:
            asked = time.monotonic()
            status = str(processes.flwr("list", HERE, "--run-id", run)["runs"][0]["status"])
            if status.startswith("finished") and not (home / TOLD).exists():
                raise ConfigError(
                    f"the run ended ({status}) before its server said anything: {processes.said('superlink')}"
                )
        time.sleep(0.5)
    return dict(json.loads((home / TOLD).read_text()))
