"""Flower's programs with shorter waits, for tests: questions every .3 s instead of 3, and a SuperNode's heartbeat every 10 s instead
of 30, the least that a SuperLink takes; and an app's process is a copy of one that has loaded its libraries: warm.py.

Flower has no options for them. A folder of `PYTHONPATH` whose module of this name Python loads when it starts.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(0.3 if seconds == 3 else seconds)

if any("supernode" in word for word in sys.orig_argv):
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection

    # Of a SuperNode alone: for a task the same constant says how long its process may take to start.
    heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = 10


class Popen(subprocess.Popen):
    """Starts what it is asked to, but for apps, whose process the one that asks neither waits for nor keeps.

    The first of a server starts from nothing, as Flower starts it.
    """

    _warm = None

    def __new__(cls, command, *rest, **more):
        if command[0] not in ("flwr-clientapp", "flwr-serverapp") or rest or more:
            return super().__new__(cls)
        first = Popen._warm is None
        if first:
            program = [sys.executable, "-P", str(Path(__file__).with_name("warm.py"))]
            Popen._warm = Popen(program, stdin=subprocess.PIPE)
        if first and command[0] == "flwr-serverapp":
            return super().__new__(cls)
        Popen._warm.stdin.write(json.dumps(command).encode() + b"\n")
        Popen._warm.stdin.flush()
        return None


if any("superexec" in word for word in sys.orig_argv):
    subprocess.Popen = Popen
