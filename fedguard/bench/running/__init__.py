"""From a plan to records.

check.py        a suite before it runs: what is legal and what is refused; estimate.py, how long it takes
procedures/     how cells of each kind of target are checked, run and described: the table of procedures
rehearsal.py    what only the data can tell about a cell, before it runs; limit.py, its limit in time
execute.py      a plan with workers of its own
runner.py       a whole suite: resume, failures, Ctrl-C; progress.py, what it says meanwhile
schedule.py     which trials run, and in which order
failure_monitor.py  stops a run if every trial fails for the same reason
selection.py    how an ensemble's worst attack is chosen
engines/        where workers run: engines/local.py, a pool on this machine, and engines/ray.py, a cluster
worker.py       the process in which trials run; shared_state.py, what a trial may change there for others, and
                plugin_state.py, what plug-ins keep from one trial to the next
workbench.py    what the trials of one process share; budget.py, the memory that they may hold
trial.py        one cell with one seed: train, measure, make the record; apps.py, an app's, in processes of its own
inference/      a server that infers: where claim and truth meet
replay.py       what is kept of the rounds, to be replayed
in_time.py      evaluation in simulated time; other_fates.py, with the running statistics of other fates
references.py   one more training to compare with: the server alone
card.py         the threat card of a cell; protocol.py, its masks and noise
manifest.py     the manifest of a run folder
code.py         digests of code and data; environment.py, the machine
spans.py        a run as spans of OpenTelemetry
blame.py        the plug-in from which an error came
"""
