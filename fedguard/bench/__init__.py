"""Running suites and reading what came out.

check.py       a suite before it runs: what is legal, what is refused, how long it takes
reasons.py     why cells were refused or failed, in words
rehearsal.py   what only the data can tell about a cell, before it runs
runner.py      a whole suite: order, resume, failures, Ctrl-C
engines/       where workers run: local.py, a pool on this machine
worker.py      the process in which trials run; shared_state.py, what a trial may change there for others
blame.py       whose plug-in an error came out of; limit.py, a limit in time for what runs in the parent
selection.py   how an ensemble's worst attack is chosen
trial.py       one cell with one seed: train, measure, make the record
references.py  two more trainings to compare with: the honest clients alone, and the server alone
card.py        the threat card of a cell
record.py      how a record is sealed, and what of it a seed must reproduce
store.py       run folders
run.py         a finished or half-finished run, to be read
stats.py       intervals
matrix.py      attacks by defenses
breakdown.py   curves over a swept key, and where half is lost; plot.py, charts for the terminal
report.py      what `show` says of a run
starters.py    what `init`, `new` and `examples` write
export.py, doctor.py, progress.py   what the other commands say
judging/       red flags of runs and of other people's results, for `lint`
tuning/        defenses tuned with equal budgets, for `tune`
explain/       what `list` and `explain` say
"""
