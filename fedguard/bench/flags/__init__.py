"""The red flags of runs, of FedGuard's own and of other people's.

results.py     what flags are judged on: a run, or somebody else's table
foreign.py     reads that table; columns.py, by which names its columns go
run_flags.py   the flags of a whole run; those of one record stand in `fedguard.metrics.flags`
permutation.py whether the order of the clients decides
lint.py        every flag, what could not be judged, and why
"""
