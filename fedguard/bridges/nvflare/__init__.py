"""NVFlare: attack and rule act in the server's controller, where the results of a round are aggregated.

job.py          a job's folder: what it is, why it is refused, and a copy whose controller is FedGuard's subclass
controller.py   that subclass: it holds the results of a round and hands them on, attacked and defended
running.py      a trial in NVFlare's simulator
ending.py       no process outlives its trial
lying.py        a filter by which one site lies, in a job of one's own
aggregator.py   a rule of the catalog as a job's own aggregator
"""
