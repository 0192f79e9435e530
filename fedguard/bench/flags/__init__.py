"""The red flags of runs, both FedGuard's own and other people's.

results.py     the input of the flags: a run, or somebody else's table
foreign.py     reads such a table; columns.py has the names of its columns
run_flags.py   the flags of a whole run; `fedguard.metrics.flags` has the flags of one record
permutation.py whether the result depends on the order of the clients
lint.py        every flag, what could not be judged, and why
answer.py      the answer of a run: its leading defense, or the flags that leave it without an answer
"""
