"""Planted weaknesses: the acceptance test of the attacks on secure aggregation and of its tests, and of the quick tests.

    plants.txt    the table of weaknesses of secure aggregation: what is broken, where, and who is expected to notice it first; plants.py reads it
    faults.txt    the table of faults everywhere else, with the quick tests near each; faults.py reads it
    tree.py       a pattern within a function of the syntax tree, and what it becomes
    planting.py   how the tables are written, and a copy of the source with one plant in it
    watching.py   attacks and tests against that copy, in a process of its own
    __main__.py   `python -m tests.mutants`: short and long form, and the table plant x who noticed
    quick.py      `python -m tests.mutants.quick`: faults against the quick tests

A sentence that says why something is safe is worth what notices that it no longer holds. So each has a plant that breaks it,
and an attack or a test has to notice. A frozen round sees a change of any byte, and so says nothing: it does not count.
"""
