"""Collectives: who sends which chunk to whom, step by step, until every node has the sum. One topology, one file.

schedule.py           schedules and their execution: on floats, on masked integers, on symbols
ring.py               ring: reduce-scatter, then all-gather
reduce_broadcast.py   reduce_broadcast: all to a root, and back
hierarchical.py       hierarchical: rings within groups, and rings across them
all_to_all.py         all_to_all: each node sends its whole vector to each other
butterfly.py          node j has part j of all vectors: used by btard, not a topology of all_reduce
leaks.py              what nodes can solve for, from the messages that reach them
listening.py          the updates that some nodes can solve for, and their solution
"""

from collections.abc import Callable

from fedguard.architectures.collectives.all_to_all import all_to_all
from fedguard.architectures.collectives.hierarchical import hierarchical
from fedguard.architectures.collectives.reduce_broadcast import reduce_broadcast
from fedguard.architectures.collectives.ring import ring
from fedguard.architectures.collectives.schedule import Schedule

#: By name: (number of nodes, size of a group) -> schedule.
TOPOLOGIES: dict[str, Callable[[int, int], Schedule]] = {
    "ring": lambda n, group: ring(n),
    "reduce_broadcast": lambda n, group: reduce_broadcast(n),
    "hierarchical": hierarchical,
    "all_to_all": lambda n, group: all_to_all(n),
}
