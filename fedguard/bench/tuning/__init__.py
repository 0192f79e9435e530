"""Defenses tuned with equal budgets, on attacks and seeds that are then held out.

tune.py        the protocol
candidates.py  the settings of a defense that are tried
proxy.py       tuning on other data, and what that costs
outcome.py     what came of it
"""
