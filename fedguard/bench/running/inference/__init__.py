"""Privacy attacks of a trial: the adversary's view of the training, its claims, and their score against the truth.

    targets.py   the clients under attack, and their true data
    curious.py   the adversary, a server or nodes: its views and claims
    adversary_nodes.py  what adversary nodes infer from their messages
    scores.py    claims compared with the truth

The attack gets a view and returns a claim; only here do claim and truth meet.
"""
