"""Flower's own programs as processes of this machine: a SuperLink, SuperNodes, and `flwr`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import flwr

from fedguard.errors import ConfigError

#: Time limits in seconds for a process to start, and to end after SIGTERM.
START, STOP = 120.0, 5.0
#: Number of ports that are tried.
PORTS = 3
#: Flower's programs, by the module and the function that they start with.
PROGRAMS = {
    "superlink": "flwr.superlink.cli.flower_superlink:flower_superlink",
    "supernode": "flwr.supernode.cli.flower_supernode:flower_supernode",
    "flwr": "flwr.cli.app:app",
}

_T = TypeVar("_T")


class _PortConflict(ConfigError):
    """A program ended because its port is in use."""


class Processes:
    """Flower's programs, with their output in files of a folder; all of them end with the ``with`` block.

    Flower's own configuration is in that folder, too, and nothing is looked up on the network. A program that a SuperLink or a
    SuperNode starts watches its parent, and ends with it.

    Args:
        folder: folder for the output and for Flower's configuration.
        aloud: whether their output is printed after they have ended.
    """

    def __init__(self, folder: Path, *, aloud: bool = True) -> None:
        self._folder, self._aloud = folder, aloud
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        told = os.environ.get("PYTHONPATH", "")
        ours = {
            "FLWR_HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "PATH": os.pathsep.join([*_scripts(), os.environ.get("PATH", "")]),
            # Absolute, since they start in another folder
            "PYTHONPATH": os.pathsep.join(str(Path(one).absolute()) for one in told.split(os.pathsep) if one),
        }
        self._environment = {**os.environ, **ours}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for name, process in reversed(self._running.items()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP)
            process.kill()
            process.wait()
            if self._aloud:
                sys.stdout.write(f"--- {name}\n{self._log(name).read_text(errors='replace')}\n")
        sys.stdout.flush()
        # Processes of a SuperLink or SuperNode that died before it could end them
        for left in self._find_orphans():
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)

    def _find_orphans(self) -> Iterator[int]:
        """Processes with this folder as Flower's home, on systems with /proc."""
        # By environment, which children inherit: nobody else uses this folder, so no stranger is killed
        mark = f"FLWR_HOME={self._folder}".encode() + b"\0"
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    yield int(process.name)

    def superlink(self, ports: Iterator[int] | None = None) -> int:
        """Start a SuperLink at a free port, and wait until it answers.

        The user has not chosen the port, so if another program takes it in the meantime, the next one is tried.

        Args:
            ports: the ports to try; by default those that the system offers, up to `PORTS` times.

        Returns:
            the port.

        Raises:
            ConfigError: the SuperLink ends or does not answer, or found no free port.
        """
        for port in ports or (free_port() for _ in range(PORTS)):
            self._start("superlink", "superlink", ["--insecure", "--host", "127.0.0.1", "--port", str(port)])
            with suppress(_PortConflict):
                self._until("superlink", f"an answer at port {port}", partial(self._answers, port))
                return port
        raise ConfigError(f"the superlink found no free port on 127.0.0.1: {self.last_line('superlink')}")

    def supernode(self, number: int, nodes: int, port: int, more: Mapping[str, str] | None = None) -> None:
        """Start the SuperNode with partition ``number`` of ``nodes``, which connects to the SuperLink at ``port``.

        Args:
            more: further configuration, besides the partition and the number of partitions.
        """
        config = f"partition-id={number} num-partitions={nodes}"
        config += "".join(f" {key}={json.dumps(value)}" for key, value in (more or {}).items())
        link = ["--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()), "--node-config", config]
        self._start("supernode", f"supernode-{number}", link)

    def node_id(self, number: int) -> int:
        """The node id of a SuperNode, from its own output. Waits until it is printed.

        Raises:
            ConfigError: the SuperNode has ended, or does not print its id in time.
        """
        # From the log, since nothing else ties a node id to the partition that this process was started with
        name = f"supernode-{number}"

        def parse_node_id() -> int | None:
            found = re.search(r"SuperNode ID: (\d+)", self._log(name).read_text(errors="replace"))
            return int(found[1]) if found else None

        return self._until(name, "its connection to the SuperLink", parse_node_id)

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run `flwr`, and return its answer, which is JSON.

        Raises:
            ConfigError: `flwr` reports an error.
        """
        command = [*self._command("flwr"), *arguments, "--format", "json"]
        said = subprocess.run(command, capture_output=True, env=self._environment, check=False, timeout=START)
        with suppress(json.JSONDecodeError):
            told = json.loads(said.stdout)
            if told.get("success"):
                return dict(told)
            raise ConfigError(f"flwr {arguments[0]}: {' '.join(str(told.get('error-message', told)).split())}")
        raise ConfigError(f"flwr {arguments[0]}: {_last((said.stdout + said.stderr).decode(errors='replace'))}")

    def check(self, name: str) -> None:
        """Raises ConfigError if a process has ended. Reaps all that have, so that their children notice and end."""
        # A process that has ended stays a zombie with its id until it is polled, and children watch for that id
        for process in self._running.values():
            process.poll()
        if self._running[name].poll() is not None:
            said = self.last_line(name)
            raise (_PortConflict if "address already in use" in said.lower() else ConfigError)(
                f"the {name} ended: {said}"
            )

    def how_ended(self, name: str) -> str | None:
        """How a process ended, in words; None while it runs."""
        code = self._running[name].poll()
        if code is None:
            return None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def last_line(self, name: str) -> str:
        """The last line of what a process printed."""
        return _last(self._log(name).read_text(errors="replace"))

    def _start(self, program: str, name: str, arguments: Sequence[str]) -> None:
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*self._command(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment,
            )

    def _until(self, name: str, what: str, found: Callable[[], _T | None]) -> _T:
        began = time.monotonic()
        while (one := found()) is None:
            self.check(name)
            if time.monotonic() - began > START:
                raise ConfigError(
                    f"the {name} started, but {what} did not come in {START:.0f} s: {self.last_line(name)}"
                )
            time.sleep(0.1)
        return one

    def _answers(self, port: int) -> bool | None:
        """True once the SuperLink itself has the port and answers there; None before."""
        # Its own log first: a connection alone would also succeed with another program at that port
        if f"running on http://127.0.0.1:{port}" in self._log("superlink").read_text(errors="replace"):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                return True
        return None

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    @staticmethod
    def _command(program: str) -> list[str]:
        module, _, function = PROGRAMS[program].partition(":")
        start = f"import sys; sys.argv[0] = {program!r}; from {module} import {function} as main; sys.exit(main())"
        return [sys.executable, "-P", "-c", start]


def free_port() -> int:
    """A port of this machine that is free at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _scripts() -> list[str]:
    """Folders of the programs that Flower's programs start: Python's, and the folder of a Flower installed elsewhere."""
    return [str(Path(sys.executable).parent), str(Path(flwr.__file__).parent.parent / "bin")]


def _last(text: str) -> str:
    """The last line that reports an error, or else the last nonempty line; without colors."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.search(r"\bERROR\b|Error: ", line)]
    if not errors:
        return next(reversed(lines), "nothing said")
    more = 3 if re.search(r"Exit Code: \d+$", lines[errors[-1]]) else 1  # Flower says why in the lines that follow
    return " ".join(lines[errors[-1] : errors[-1] + more])
