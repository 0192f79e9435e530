"""Modes of secure aggregation, one file each; the common interface is in `fedguard.contracts.cell`.

plain.py           none: each update as it is
full.py            full: one sum
groups.py          groups: the sum of each group
group_testing.py   group_testing: one sum of the clients that passed a test of overlapping groups
sessions.py        the real protocol on the updates of a round, and the accuracy of its means
pairwise.py        pairwise masks without a server, which cancel if all send: not a mode, used by fate and rings
inputs.py          what the clients put into a session
moments.py         the running statistics that they put in beside it
decoding.py        which clients are malicious, given the results of such tests
"""

MASKINGS = {
    "none": "fedguard.architectures.masking.plain:NoMasking",
    "full": "fedguard.architectures.masking.full:FullMasking",
    "groups": "fedguard.architectures.masking.groups:Groups",
    "group_testing": "fedguard.architectures.masking.group_testing:GroupTesting",
}
