"""Adapters: what a user points at, recognized by its type, becomes something that an audit can call.

contract.py       what an adapter returns: a release of one update, a training on canaries, or an event of an accountant
recognize.py      the table of packages, and the adapter for an object
flower_mods.py, flower_strategies.py, nvflare_filters.py     one client's update in, what leaves out
diffprivlib_mechanisms.py, opendp_measurements.py            numbers in, numbers out
opacus_training.py, training_loops.py                        records in, a model out
accounting_events.py                                         arithmetic alone

None of these packages is imported before an object of it is recognized.
"""
