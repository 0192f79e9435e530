"""A process that has loaded what apps load, and makes a copy of itself for each that it is asked for, which saves the seconds of
their start. A process for apps of a SuperNode, or of a SuperLink, starts it with the first, and it ends with that.
"""

import gc
import importlib
import json
import os
import signal
import sys
import traceback

from flwr.superlink.cli import flwr_serverapp
from flwr.supernode.cli import flwr_clientapp

for name in (
    *("torch", "sklearn.datasets", "fedguard.config", "fedguard.registry", "fedguard.bridges.flower.sides"),
    *("fedguard.bridges.flower.secagg", "fedguard.secagg.simulation", "fedguard.bench.conformance.deployed"),
):
    importlib.import_module(name)

gc.freeze()  # what is loaded is there for good: a copy that looked for garbage in it would take longer than its message
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
for line in sys.stdin.buffer.raw:
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.argv = json.loads(line)
        try:
            {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}[sys.argv[0]]()
        except Exception:
            traceback.print_exc()
        finally:  # nobody asks how it ended, and what is loaded need not be taken to pieces
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
