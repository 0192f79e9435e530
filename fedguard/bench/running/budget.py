"""The memory budget of a worker: its limit, the fixed needs of a cell, and the division of the rest.

Python, the libraries, the data and the network come first; then some vectors of the model's length, and the matrices that
must be in memory as a whole. The rest goes to the engines that train and to the updates, which are kept in a file if they
do not fit. `docs/scale.md` describes what is streamed and what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from fedguard.arguments import is_real
from fedguard.contracts import Cell, MatrixRule, Setup, Sight
from fedguard.errors import ConfigError, brief
from fedguard.tasks.compute import USUAL_MEMORY

#: Vectors of the model's length that a round holds at a time: models, aggregate, momentum, one client in training, and the
#: mean and the aggregate in float64 as they are measured.
VECTORS = 16
#: Blocks of columns, batches of test examples, and what the allocator keeps.
SCRATCH = 64 << 20
#: What the system may map of a file at a time when one byte is read: a huge page. A block of columns touches each row.
PAGE = 2 << 20
#: The least that the engines are given.
LEAST = 16 << 20

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_memory(memory: int | str) -> int:
    """Bytes, from a number of them or a text such as "4G" or "512M" (powers of 1024).

    Raises:
        ConfigError: it is no amount of memory, or not above 0.
    """
    text = str(memory).upper() if isinstance(memory, str) or (is_real(memory) and memory < 2**63) else ""
    found = re.fullmatch(r"\s*(\d{1,20}(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", text)
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size <= 0:
        raise ConfigError(f"memory: expected bytes, or a number with K, M, G or T, such as 4G; got {brief(memory)}.")
    return size


def within(setup: Setup, memory: int, held: int) -> tuple[int, int]:
    """The shares of ``memory`` bytes for the engines that train and for the updates.

    Args:
        held: bytes that the process holds before the training.

    Raises:
        ConfigError: the training needs more.
    """
    vector, n = torch.get_default_dtype().itemsize * setup.task.dim, setup.cell.clients.expected
    wholes = dict(_wholes(setup, n))
    pages = n * min(vector, PAGE)
    parts = {
        "Python, data and network": held,
        f"{VECTORS} vectors of the model's length": VECTORS * vector,
        **{what: rows * vector for what, rows in wholes.items()},
        "blocks": SCRATCH,
        "of the updates at a time": pages,
        "training": LEAST + vector,
    }
    if (needed := sum(parts.values())) > memory:
        told = ", ".join(f"{in_words(size)} {what}" for what, size in parts.items())
        raise ConfigError(
            f"memory: expected at least {in_words(needed)} for each worker ({told}); got {in_words(memory)}. "
            "Raise --memory, or lower --jobs."
        )
    rest = memory - needed + LEAST
    engines = min(
        USUAL_MEMORY, 1 << (max(rest // 2, LEAST).bit_length() - 1)
    )  # coarse, so that it is the same each time
    streamed = 1 + (setup.cell.training.worker_momentum > 0)
    share = (rest - engines + vector + pages) // streamed
    return engines, max(share, n * vector) if read_as_a_whole(setup.cell) else share


def in_words(size: int) -> str:
    """Bytes for people: ``1.50G``, ``512M``."""
    return f"{size / 2**30:.2f}G" if size >= 1 << 30 else f"{size / 2**20:.0f}M"


def read_as_a_whole(cell: Cell) -> list[str]:
    """The names of the rule, the attack and the noise that read the updates of a round in one piece, as far as they do."""
    rule, noise = cell.pipeline.rule, cell.noise
    found = [rule.name] if not rule.by_blocks or (isinstance(rule, MatrixRule) and cell.pipeline.mixings) else []
    if cell.attack is not None and cell.attack_sees & (Sight.HONEST_UPDATES | Sight.RULE):
        found.append(cell.attack.name)
    return [*found, noise.name] if noise.added_by == "server" else found


def _wholes(setup: Setup, n: int) -> Iterator[tuple[str, int]]:
    """The matrices that must be in memory as a whole, each with its number of rows of length d."""
    clients, malicious = len(setup.task.sizes), len(setup.malicious)
    if read_as_a_whole(setup.cell):
        yield f"{n} updates, which are read as a whole, and a copy", 2 * n
    if setup.cell.noise.added_by == "server":
        yield "their float64 for the server's clipping", 2 * n
    if setup.cell.attack is not None and malicious:
        yield "what the attack crafts", 2 * min(n, malicious)
    algorithm = setup.cell.algorithm
    if kept := algorithm.floats_kept(setup.task):
        yield f"the clients' own vectors of {algorithm.name}", -(-(clients + n) * kept // setup.task.dim)
    if setup.observer is not None:
        watched = sum(map(setup.observer.watches, range(1, setup.cell.training.rounds + 1)))
        yield f"{watched} watched rounds", watched * (4 if setup.observer.seat else 2) * n
    if setup.cell.masking.masked:
        yield "the sums of secure aggregation", 24
