"""Flower's programs with shorter waits, for tests: questions every .3 s instead of 3, and a SuperNode's heartbeat every 10 s instead
of 30, the least that a SuperLink takes.

Flower has no options for them. A folder of `PYTHONPATH` whose module of this name Python loads when it starts.
"""

import sys
import time

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(0.3 if seconds == 3 else seconds)

if any("supernode" in word for word in sys.orig_argv):
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection

    # Of a SuperNode alone: for a task the same constant says how long its process may take to start.
    heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = 10
