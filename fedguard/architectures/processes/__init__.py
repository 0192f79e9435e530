"""The architectures with real processes behind them: the same files, and an adapter where they meet the others.

`links` sends vectors to other processes, `gossip` is one node of a gossip, `collective` one of an all-reduce, and `course` lets
a server follow what really arrives, or what once did.
"""
