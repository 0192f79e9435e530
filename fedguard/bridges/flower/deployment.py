"""An app deployed on this machine: a SuperLink, SuperNodes as processes of their own, and `flwr run`.

All of them listen only on 127.0.0.1, without TLS (`--insecure`). The app is sent as Flower's bundle, with an additional module
that wraps its two sides. The result is returned as a JSON file.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
from flwr.cli.build import build_fab_from_disk

from fedguard.bridges.flower.app import FlowerApp
from fedguard.bridges.flower.processes import Processes
from fedguard.bridges.flower.sides import ASKED, TOLD
from fedguard.bridges.jobs import TrialRequest
from fedguard.errors import ConfigError, NotAllowed

#: The module that is added to the app's own, and its content.
MODULE = "fedguard_check"
_WRAPPED = """from pathlib import Path

from fedguard.bridges.flower.sides import client_side, server_side

server = server_side(Path(__file__).parent, Path({home!r}))
client = client_side(Path(__file__).parent, Path({home!r}))
"""
#: Name of the SuperLink for `flwr run`.
HERE = "here"
#: Seconds between queries of the run's status; each starts a process.
PATIENCE = 60.0


class FlowerDeployment:
    """A SuperLink with SuperNodes, on which apps run one after the other; all processes end with the ``with`` block.

    Args:
        nodes: number of nodes; each is configured with its ``partition-id`` and ``num-partitions``.
        config: by partition, further configuration of the SuperNode, which its apps read in ``context.node_config``.
        aloud: whether the output of the processes is printed at the end.

    Attributes:
        partitions: by Flower's node id, the ``partition-id``.

    Raises:
        ConfigError: a process does not start.
    """

    def __init__(
        self, nodes: int, config: Callable[[int], Mapping[str, str]] | None = None, *, aloud: bool = True
    ) -> None:
        self.nodes, self._config, self._aloud, self._runs = nodes, config or (lambda _: {}), aloud, 0
        self.partitions: dict[int, int] = {}

    def __enter__(self) -> FlowerDeployment:
        with ExitStack() as stack:
            self.home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedguard-flower-")))
            self.processes = stack.enter_context(Processes(self.home, aloud=self._aloud))
            self._port = self.processes.superlink()
            link = f'[superlink.{HERE}]\naddress = "127.0.0.1:{self._port}"\ninsecure = true\n'
            (self.home / "config.toml").write_text(link)
            for number in range(self.nodes):
                self.start(number)
            self.partitions = {self.processes.node_id(number): number for number in range(self.nodes)}
            # Only now: if a process did not start, leaving the block above ends all others
            self._ended = stack.pop_all()
        return self

    def __exit__(self, *why: Any) -> None:
        self._ended.__exit__(*why)

    def start(self, number: int) -> None:
        """Start a node's SuperNode."""
        self.processes.supernode(number, self.nodes, self._port, self._config(number))

    def again(self, number: int) -> None:
        """Restart the SuperNode of a node that has died; Flower gives it another node id."""
        self.start(number)
        self.partitions = {node: one for node, one in self.partitions.items() if one != number}
        self.partitions[self.processes.node_id(number)] = number

    def place(self) -> Path:
        """A folder for one more run, for its request and its answer."""
        self._runs += 1
        folder = self.home / f"run-{self._runs}"
        folder.mkdir()
        return folder

    def run(self, app: Path, told: Path) -> dict[str, Any]:
        """Run an app's folder, and wait for the file ``told`` that its server writes at its end.

        Raises:
            ConfigError: Flower refuses the app, the run ends without writing the file, or the SuperLink ends.
        """
        run = str(self.processes.flwr("run", str(app), HERE)["run-id"])
        return _wait_for_result(self.processes, told, run)

    def describe_exits(self) -> dict[str, str]:
        """By partition, how the processes of dead nodes ended."""
        found = {number: self.processes.how_ended(f"supernode-{number}") for number in range(self.nodes)}
        return {str(number): how for number, how in found.items() if how}


def run_deployed(asked: TrialRequest, on: FlowerDeployment | None = None) -> dict[str, Any]:
    """Run a trial on a SuperLink with one SuperNode for each node, all of them processes of this machine.

    A SuperNode that dies is missing from its round and from later ones; Flower continues once it notices that the node's
    heartbeat is missing. The result counts the missing answers and says how the process ended. The trial ends if the app's
    strategy waits for more nodes than are left, or if the SuperLink dies.

    Args:
        on: a running deployment with the same number of nodes; by default a new one, which ends with the trial.

    Raises:
        ConfigError: a process does not start or dies, Flower refuses the app, or an error of `serve_app`.
        NotAllowed: attack or rule cannot be used there.
    """
    if on is None:
        with FlowerDeployment(asked.nodes) as federation:
            return run_deployed(asked, federation)
    read, home = FlowerApp.read(asked.app, asked.settings), on.place()
    _bundle(read, home)
    parts = {"server": read.server, "client": read.client, "config": read.config}
    # Pairs, since keys of a JSON object would turn node ids into strings
    written = {"asked": asdict(asked), "parts": parts, "nodes": list(on.partitions.items())}
    (home / ASKED).write_text(json.dumps(written))
    found = on.run(home / "app", home / TOLD)
    ended = on.describe_exits()
    if "found" in found:
        return {**found["found"], "ended": ended}
    died = "".join(f" The process of node {number} {how}." for number, how in ended.items())
    raise (NotAllowed if found["refused"] else ConfigError)(found["reason"] + died)


def require_deployable(read: FlowerApp) -> None:
    """Raises ConfigError if Flower would not accept the app."""
    with tempfile.TemporaryDirectory(prefix="fedguard-flower-") as folder:
        _bundle(read, Path(folder))


def _bundle(read: FlowerApp, home: Path) -> None:
    """Copy the app, and wrap its two sides.

    Raises:
        ConfigError: Flower would not accept it.
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


def _wait_for_result(processes: Processes, told: Path, run: str) -> dict[str, Any]:
    """Wait for the file that the server's side writes at its end.

    Raises:
        ConfigError: the run ended without writing it, or its SuperLink ended.
    """
    # The file, not `flwr`'s status, is the signal: it costs no process, and is complete once it has its name
    asked = time.monotonic()
    while not told.exists():
        processes.check("superlink")
        if time.monotonic() - asked > PATIENCE:
            asked = time.monotonic()
            status = str(processes.flwr("list", HERE, "--run-id", run)["runs"][0]["status"])
            if status.startswith("finished") and not told.exists():
                raise ConfigError(
                    f"the run ended ({status}) before its server said anything: {processes.last_line('superlink')}"
                )
        time.sleep(0.5)
    return dict(json.loads(told.read_text()))
