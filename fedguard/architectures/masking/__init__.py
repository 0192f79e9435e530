"""Modes of secure aggregation, one file each; what they have in common is told in `fedguard.contracts.masking`.

full.py            full: one sum
groups.py          groups: the sum of each group
group_testing.py   group_testing: one sum of those who passed a test of overlapping groups
sessions.py        the real protocol on the updates of a round, and how well its sums tell the means
pairwise.py        masks in pairs without a server, which cancel if all send: no mode, but what fate and rings use
inputs.py          what the clients put into a session
decoding.py        who is malicious, as far as such tests tell
"""

MASKINGS = {
    "off": "fedguard.contracts.masking:NoMasking",
    "full": "fedguard.architectures.masking.full:FullMasking",
    "groups": "fedguard.architectures.masking.groups:Groups",
    "group_testing": "fedguard.architectures.masking.group_testing:GroupTesting",
}
