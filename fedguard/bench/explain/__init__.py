"""The output of `list` and `explain` for an algorithm.

catalogue.py   taken from the algorithm itself
toy.py         what it does to a toy round
picture.py     points as characters
"""
