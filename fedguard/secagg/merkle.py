"""One signature over many packets, each of which can be forwarded and verified alone (Merkle, CRYPTO 1987)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

# Prefixes keep leaves and inner nodes apart (as in RFC 6962), or an inner node could pass as a leaf
_LEAF, _NODE, _EMPTY = b"\x00", b"\x01", bytes(32)


def leaf(data: bytes) -> bytes:
    """SHA-256 of a packet, in a domain apart from all inner nodes."""
    return hashlib.sha256(_LEAF + data).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The root of a tree over ``leaves``, filled up with zeros to a power of two."""
    return _levels(leaves)[-1][0]


def paths(leaves: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """For each leaf, the siblings on its path to the root, lowest first."""
    levels = _levels(leaves)[:-1]
    return [tuple(level[index >> height ^ 1] for height, level in enumerate(levels)) for index in range(len(leaves))]


def climb(start: bytes, index: int, path: Sequence[bytes]) -> bytes:
    """The root above the leaf ``start`` at position ``index`` (from 0)."""
    # Left or right follows from the verifier's own index, so that a packet verifies at no other position
    node = start
    for height, sibling in enumerate(path):
        node = _join(sibling, node) if index >> height & 1 else _join(node, sibling)
    return node


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    size = 1 << max(0, len(leaves) - 1).bit_length()
    # Zeros, not a repeated last leaf: with a repetition two lists of leaves would have one root
    levels = [[*leaves, *[_EMPTY] * (size - len(leaves))]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([_join(below[i], below[i + 1]) for i in range(0, len(below), 2)])
    return levels


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()
