"""Metrics of a training: dissimilarity of the clients, scores of a trajectory, honest minorities, red flags.

figures.py   the table of figures: what each is, where a record holds it, where it is shown
stats.py     intervals and tests
"""
