"""What can move a rule how far, searched for among inputs of the shapes.py of known attacks on it.

kappa.py        the kappa-meter: f of n equal clients, and the input that moves a rule farthest
weight.py       the meter of breakdown in weight: which sites of unequal weight together, and how far each alone
"""
