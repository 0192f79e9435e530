"""The parts of the Lab.

composition.py   what the reader put together, as a suite
menus.py         the menus, from what algorithms and sections say of themselves
composition_check.py  whether it is legal, and who sees what
live.py          runs it, with live curves
result.py        what came out
"""
