"""A trial's inference: what a server saw of the training, what it claims of the data, and how near that is to the truth.

    targets.py   whose data an attack is about, and what of them is true
    curious.py   the server that watches: its views, its claims
    noise.py     how strong a noise hides a round, as shadow models must know
    scores.py    claims beside the truth

The attack gets a view and returns a claim; only here do claim and truth meet.
"""
