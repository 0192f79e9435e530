"""A trial's inference: what somebody saw of the training, what they claim of the data, and how near that is to the truth.

    targets.py   whose data an attack is about, and what of them is true
    curious.py   who watches, a server or nodes: their views, their claims
    seats.py     what nodes that look make of what they hear
    scores.py    claims beside the truth

The attack gets a view and returns a claim; only here do claim and truth meet.
"""
