"""Secure aggregation: a server learns the sum of its clients' inputs and nothing else.

The protocol, without I/O
    transitions.py   who may say what, when: start here
    client.py  server.py   the two parties: bytes in, bytes out
    messages.py  codec.py    the messages, and the bytes that they are made of; merkle.py, one signature over many packets
    session.py       what is agreed on beforehand, and the identifier that binds everything to it
    directory.py     the advertised keys of all clients, and the graph that follows
    errors.py        what can go wrong, and whom each error blames
Its parts
    keys.py          identities, key agreement, derived keys with their labels
    masks.py         keystreams added to ring vectors
    shamir.py        secret sharing
    graph.py  parameters.py   the graph of neighbors, the numbers of shares and signatures, and what they guarantee
    entropy.py       where secrets come from
    planning.py      the parameters of a protocol's sessions, checked before anything runs
    checkpoint.py    a client between two messages, as bytes
Real vectors
    encoding.py  rotation.py  clip, rotate, scale, round at random, wrap
    sums.py          one secure sum behind one call
Whole rounds
    simulation.py    all parties in one process
    contest.py       malicious parties against real ones, and the referee

After Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017, and Bell et al.,
Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020.
"""
