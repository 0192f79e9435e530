"""Cells that are put to the test: their noise, and what each client is worth.

cells.py          noise: what is audited
training.py       their own training
suites.py         a run's
mechanisms.py     the user's own mechanisms; first_release.py runs one in a new process, sarif.py writes the findings
contribution.py   what each client contributes, malicious ones too; contributed.py, that as a table and as JSON
"""
