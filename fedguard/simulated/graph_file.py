"""A graph read from a file: which node receives from which, and with what weight."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from fedguard.errors import ConfigError, brief, oneline
from fedguard.retired import RETIRED_COLUMNS
from fedguard.simulated.files import content

#: Largest size in bytes: a complete graph of 500 nodes has some 5 million.
MOST_BYTES = 16 << 20
#: By how much the weights of a node may differ from 1.
ROUNDING = 1e-6
_HEADERS = (["node", "neighbor"], ["node", "neighbor", "weight"])


def read(file: str, nodes: int) -> tuple[NDArray[np.float64], bool]:
    """The links or weights of a file, and whether they are weights.

    The file holds comma-separated values under the header ``node,neighbor`` or ``node,neighbor,weight``. Each row is a link
    over which a node receives from its neighbor, in one direction; nodes are numbered from 0. A row with a weight may name one
    node twice: this is the weight of its own value, which otherwise is what is missing to 1.

    Returns:
        float64 ``[n, n]``, row i with what node i receives: 1 for a link, or its weight; rows of weights add up to 1.

    Raises:
        ConfigError: the file cannot be read, or is not such a graph of ``nodes`` nodes.
    """
    return _parse_graph(_content(file), file, nodes)


def digest(file: str) -> str:
    """Hash of the content of the file. Raises as `read`."""
    return hashlib.sha256(_content(file)).hexdigest()[:16]


def _content(file: str) -> bytes:
    return content(file, MOST_BYTES, "Leave out nodes or links.")


@lru_cache(maxsize=8)
def _parse_graph(held: bytes, name: str, nodes: int) -> tuple[NDArray[np.float64], bool]:
    try:
        rows = csv.reader(held.decode("utf-8-sig").splitlines(), strict=True)
        header = [RETIRED_COLUMNS.get(name, name) for name in next(rows, [])]
        if header not in _HEADERS:
            raise ConfigError(
                f"{name}: row 1: expected the header node,neighbor or node,neighbor,weight; got {brief(','.join(header))}. "
                "Write it so."
            )
        # NaN marks a missing row: a weight of 0 is a row, and a second one for the same link must be noticed
        weighted, matrix = len(header) == 3, np.full((nodes, nodes), np.nan)
        for row in rows:
            where = f"{name}: row {rows.line_num}"
            node, other, weight = _row(row, where, header, nodes)
            if node == other and not weighted:
                raise ConfigError(f"{where}: node {node} receives from itself, which needs no link. Drop the row.")
            if not np.isnan(matrix[node, other]):
                raise ConfigError(f"{where}: node {node} receives from node {other} a second time. Drop one of both.")
            matrix[node, other] = weight
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{name}: cannot be read: {oneline(error)}. Write it as comma-separated values.") from None
    if weighted:
        _complete(matrix, name)
    matrix = np.nan_to_num(matrix)
    # A link of weight 0 carries nothing, so it does not connect
    _check_connectivity(matrix != 0, name)
    return matrix, weighted


def _row(row: Sequence[str], where: str, header: Sequence[str], nodes: int) -> tuple[int, int, float]:
    if len(row) != len(header):
        raise ConfigError(
            f"{where}: expected {','.join(header)}; got {brief(','.join(row))}. Give {len(header)} values."
        )
    for text in row[:2]:
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < nodes):
            raise ConfigError(
                f"{where}: expected the number of one of {nodes} nodes, from 0 to {nodes - 1}; got {brief(text)}. Number them, "
                "or set clients.total."
            )
    try:
        weight = float(row[2]) if len(row) == 3 else 1.0
    except ValueError:
        weight = -1.0
    if not (isfinite(weight) and 0 <= weight <= 1):
        raise ConfigError(f"{where}: expected a weight in [0, 1]; got {brief(row[2])}. Write a number such as 0.25.")
    return int(row[0]), int(row[1]), weight


def _complete(matrix: NDArray[np.float64], name: str) -> None:
    """Set the weight of each node's own value to what is missing to 1, in place, unless the file gives it."""
    for node, row in enumerate(matrix):
        total = float(np.nansum(row))
        if np.isnan(row[node]):
            row[node] = max(0.0, 1 - total) if total <= 1 + ROUNDING else np.nan
        if np.isnan(row[node]) or abs(float(np.nansum(row)) - 1) > ROUNDING:
            raise ConfigError(
                f"{name}: the weights of node {node} add up to {total:.6g}, and not to 1. Correct them, or leave out the row "
                "for its own value, whose weight is then what is missing."
            )


def _check_connectivity(links: NDArray[np.bool_], name: str) -> None:
    """Check that what any node sends reaches every other node in the end (strong connectivity)."""
    import networkx

    # Row i holds what node i receives, and an edge leads from the sender: hence the transpose
    graph = networkx.from_numpy_array(links.T, create_using=networkx.DiGraph)
    if networkx.is_strongly_connected(graph):
        return
    reached = networkx.descendants(graph, 0) | {0}
    unheard = [node for node in range(len(links)) if node not in reached]
    deaf = [node for node in range(1, len(links)) if node not in networkx.ancestors(graph, 0)]
    one, other = (0, unheard[0]) if unheard else (deaf[0], 0)
    raise ConfigError(f"{name}: nothing that node {one} sends ever comes to node {other}. Add links that lead there.")
