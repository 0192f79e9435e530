"""The kappa-meter: kappa.py searches for the input that moves a rule farthest, from the shapes.py of known attacks on it."""
