"""The architectures with real processes: the same algorithms, with adapters for their messages.

`links` sends vectors to other processes, `gossip` is one node of a gossip, `collective` one node of an all-reduce, and `course`
lets a server follow real arrivals, or replays recorded ones.
"""
