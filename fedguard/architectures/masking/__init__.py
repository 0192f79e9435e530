"""What the server has of a round, in each mode of secure aggregation.

contract.py        Masking, Received: the contract of a mode
sessions.py        the real protocol on the updates of a round, and how well its sums tell the means
plain.py           off: each update
full.py            full: one sum
groups.py          groups: the sum of each group
group_testing.py   group_testing: one sum of those who passed a test of overlapping groups
decoding.py        who is malicious, as far as such tests tell
"""

from fedguard.architectures.masking.contract import Masking, Received
from fedguard.architectures.masking.full import Full
from fedguard.architectures.masking.group_testing import GroupTester
from fedguard.architectures.masking.groups import Grouped
from fedguard.architectures.masking.plain import Plain
from fedguard.contracts import Groups, GroupTested, Setup

__all__ = ["Masking", "Received", "masking"]


def masking(setup: Setup) -> Masking:
    """The mode that a cell's protocol asks for.

    Raises:
        ConfigError: it cannot keep its promise among these clients, or its sums do not fit the ring.
    """
    plan = setup.protocol.secure_aggregation
    if isinstance(plan, Groups):
        return Grouped(setup, plan)
    if isinstance(plan, GroupTested):
        return GroupTester(setup, plan.group_testing)
    return Full(setup) if plan == "full" else Plain(setup)
