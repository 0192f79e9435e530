"""Running suites and reading what came out.

check.py       a suite before it runs: what is legal, what is refused, how long it takes
rehearsal.py   what only the data can tell about a cell, before it runs
runner.py      a whole suite: order, resume, failures, Ctrl-C
engines/       where workers run: local.py, a pool on this machine
worker.py      the process in which trials run
trial.py       one cell with one seed: train, measure, make the record
card.py        the threat card of a cell
record.py      how a record is sealed, and what of it a seed must reproduce
store.py       run folders
run.py         a finished or half-finished run, to be read
stats.py       intervals
matrix.py      attacks by defenses
report.py      what `show` says of a run
export.py, catalogue.py, doctor.py, progress.py   what the other commands say
"""
