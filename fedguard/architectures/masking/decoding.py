"""Which clients are malicious, given tests of overlapping groups: the design of the tests, and the exact posterior.

Xhemrishi et al., FedGT, IEEE Transactions on Information Forensics and Security 2025: forward and backward over a trellis
with the syndromes as states (which groups hold a malicious client), as Bahl et al. 1974 decode codes.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedguard.rng import Rng

#: Probability that a test is positive without a malicious client in the group, and negative with one.
FALSE_ALARM = MISS = 0.05
#: Number of designs from which the most even is taken.
DRAWS = 30
#: Largest number of sets of clients tried to find the smallest combination of sums.
SUBSETS = 20_000

Matrix = NDArray[np.bool_]


@lru_cache(maxsize=16)
def design(clients: int, tests: int, memberships: int) -> Matrix:
    """bool ``[tests, clients]``: who is in which group; each client in ``memberships``, the groups about equally large.

    The most even of some fixed draws, so that the guarantee of the groups is known before anything runs. The training draws
    which client gets which column.
    """
    draws = (
        _draw_design(clients, tests, memberships, Rng(0).child("design", number).numpy()) for number in range(DRAWS)
    )
    matrix = min(draws, key=lambda drawn: float(drawn.sum(axis=1).var()))
    # The cache hands out one array to all
    matrix.flags.writeable = False
    return matrix


def _draw_design(clients: int, tests: int, memberships: int, rng: np.random.Generator) -> Matrix:
    """Each client in turn gets one of the least used sets of groups so far, and among these one with the smallest groups."""
    patterns = np.array(list(itertools.combinations(range(tests), memberships)))
    used, sizes = np.zeros(len(patterns), int), np.zeros(tests, int)
    matrix = np.zeros((tests, clients), bool)
    for client in range(clients):
        chosen = np.lexsort((rng.random(len(patterns)), (sizes[patterns] ** 2).sum(axis=1), used))[0]
        used[chosen] += 1
        sizes[patterns[chosen]] += 1
        matrix[patterns[chosen], client] = True
    return matrix


def posterior(matrix: Matrix, positive: NDArray[np.bool_], prevalence: float) -> NDArray[np.float64]:
    """float64 ``[clients]``: P[client i is malicious | the tests].

    Each client is malicious with probability ``prevalence``, on its own; test j is positive with probability 1 - MISS if
    one of its group is, and FALSE_ALARM if none is. With s the syndrome so far, a bit for each test, and a_i = column i,

        forward_0(0) = 1,  forward_i+1(s) = (1 - p) forward_i(s) + p sum_{r : r | a_i = s} forward_i(r)
        backward_n(s) = P[tests | s],  backward_i(s) = (1 - p) backward_i+1(s) + p backward_i+1(s | a_i)
        P[i malicious | tests] ~ p sum_s forward_i(s) backward_i+1(s | a_i)

    Time and memory O(clients 2^tests).
    """
    tests, clients = matrix.shape
    states = np.arange(2**tests)
    columns = [int(sum(1 << test for test in np.flatnonzero(matrix[:, client]))) for client in range(clients)]
    held = (states[:, None] >> np.arange(tests)) & 1 == 1
    likely = np.where(held, np.where(positive, 1 - MISS, MISS), np.where(positive, FALSE_ALARM, 1 - FALSE_ALARM))
    p, forward = prevalence, np.zeros((clients + 1, len(states)))
    forward[0, 0] = 1.0
    for i, column in enumerate(columns):
        forward[i + 1] = (1 - p) * forward[i] + p * np.bincount(states | column, forward[i], len(states))
    backward, found = likely.prod(axis=1), np.empty(clients)
    for i in reversed(range(clients)):
        malicious = p * float(forward[i] @ backward[states | columns[i]])
        honest = (1 - p) * float(forward[i] @ backward)
        found[i] = malicious / (malicious + honest)
        backward = (1 - p) * backward + p * backward[states | columns[i]]
    return found


@lru_cache(maxsize=16)
def smallest_of_design(clients: int, tests: int, memberships: int) -> int:
    """`smallest_combination` of a `design`, if nobody drops out."""
    return smallest_combination(design(clients, tests, memberships))


def smallest_combination(matrix: Matrix, at_most: int = SUBSETS) -> int:
    """The fewest clients in a linear combination of the sums, or a lower bound on it.

    There is a combination over the clients in S alone if and only if removing the columns of S lowers the rank. Sets of one
    client, of two and so on are tried until one does, or until ``at_most`` sets have been tried.

    Args:
        matrix: bool ``[sums, clients]``: who is in which sum.
    """
    taking_part = matrix[:, matrix.any(axis=0)].astype(float)
    clients = int(taking_part.shape[1])
    rank, tried = int(np.linalg.matrix_rank(taking_part)) if clients else 0, 0
    for size in range(1, clients):
        subsets = itertools.combinations(range(clients), size)
        while batch := list(itertools.islice(subsets, 1000)):
            tried += len(batch)
            if tried > at_most:
                return size
            kept = np.ones((len(batch), clients), bool)
            np.put_along_axis(kept, np.array(batch), False, axis=1)
            if (np.linalg.matrix_rank(taking_part[None] * kept[:, None]) < rank).any():
                return size
    return clients
