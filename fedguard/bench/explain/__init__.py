"""The output of `list` and `explain`.

listing.py     every algorithm in a line, without loading it
catalogue.py   what is known of one, taken from the algorithm itself
toy.py         what it does to a toy round
picture.py     points as characters
settings.py    what may be set: the parameters of an algorithm, the keys of a suite
masks.py       who sees what under secure aggregation and noise
session.py     one round of secure aggregation, step by step
"""
