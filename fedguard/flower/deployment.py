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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
from flwr.cli.build import build_fab_from_disk

from fedguard.errors import ConfigError, NotAllowed
from fedguard.flower.app import FlowerApp
from fedguard.flower.processes import Processes
from fedguard.flower.sides import ASKED, TOLD
from fedguard.flower.watched import TrialRequest

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


class FlowerDeployment:
    """A SuperLink with SuperNodes, on which apps run one after the other; all processes end with the block.

    Args:
        nodes: how many; each is told its ``partition-id`` and ``num-partitions``.
        config: by a node's number, what more its SuperNode is told, and its apps read in ``context.node_config``.
        aloud: whether what the processes have said is printed at the end.

    Attributes:
        partitions: by Flower's number of a node, its ``partition-id``.

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
            self._ended = stack.pop_all()
        return self

    def __exit__(self, *why: Any) -> None:
        self._ended.__exit__(*why)

    def start(self, number: int) -> None:
        """Start a node's SuperNode."""
        self.processes.supernode(number, self.nodes, self._port, self._config(number))

    def again(self, number: int) -> None:
        """Start the SuperNode of a node that has died; Flower gives it another number."""
        self.start(number)
        self.partitions = {node: one for node, one in self.partitions.items() if one != number}
        self.partitions[self.processes.node_id(number)] = number

    def place(self) -> Path:
        """A folder for one more run, in which it finds what it is asked and leaves what it tells."""
        self._runs += 1
        folder = self.home / f"run-{self._runs}"
        folder.mkdir()
        return folder

    def run(self, app: Path, told: Path) -> dict[str, Any]:
        """Run an app's folder, and wait for what its server's side writes to ``told`` at its end.

        Raises:
            ConfigError: Flower refuses it, or it ends without a word, or the SuperLink does.
        """
        run = str(self.processes.flwr("run", str(app), HERE)["run-id"])
        return _wait_for_result(self.processes, told, run)

    def describe_exits(self) -> dict[str, str]:
        """By their partition, how the processes of nodes that have died ended."""
        found = {number: self.processes.how_ended(f"supernode-{number}") for number in range(self.nodes)}
        return {str(number): how for number, how in found.items() if how}


def run_deployed(asked: TrialRequest, on: FlowerDeployment | None = None) -> dict[str, Any]:
    """Run a trial on a SuperLink with as many SuperNodes as there are nodes, each a process of this machine.

    A SuperNode that dies is lost to its round and those that follow, with which Flower goes on once the node's heartbeat is
    missed; what was lost is counted, and told with how the process ended. Where the app's strategy waits for more nodes than
    are left, and where the SuperLink dies, the trial ends.

    Args:
        on: one that runs already, with as many nodes; by default one of its own, which ends with the trial.

    Raises:
        ConfigError: a process does not start or dies, Flower refuses the app, or what `serve_app` raises.
        NotAllowed: attack or rule have no place there.
    """
    if on is None:
        with FlowerDeployment(asked.nodes) as federation:
            return run_deployed(asked, federation)
    read, home = asked.read, on.place()
    _bundle(read, home)
    parts = {"server": read.server, "client": read.client, "config": read.config}
    written = {"asked": asdict(asked), "parts": parts, "nodes": list(on.partitions.items())}
    (home / ASKED).write_text(json.dumps(written))
    found = on.run(home / "app", home / TOLD)
    ended = on.describe_exits()
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


def _wait_for_result(processes: Processes, told: Path, run: str) -> dict[str, Any]:
    """Wait for what the server's side writes at its end.

    Raises:
        ConfigError: it ended without a word, or its SuperLink did.
    """
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
