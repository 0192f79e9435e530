"""Running suites and reading what came out.

trial.py     one cell with one seed: train, measure, make the record
record.py    what is stored of a trial
card.py      the threat card of a cell
worker.py    the process in which trials run
engines/     where workers run: local.py, a pool on this machine
runner.py    a whole suite: order, resume, failures, Ctrl-C
store.py     run folders and records
run.py       a finished or half-finished run, to be read
stats.py     intervals
report.py    tables for the terminal
"""
