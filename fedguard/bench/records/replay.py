"""Rounds kept to be replayed, in one file beside the record of their trial.

runs/<run>/artifacts/<cell>-seed-003-replay.npz

A round is kept as the inner products of what was sent, and not as the vectors: n^2 numbers instead of n d, from which all
distances, angles and projections within the round follow.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedguard.bench.records.reading import content
from fedguard.bench.records.store import RunFolder, write_atomically
from fedguard.errors import StoreError

Floats = NDArray[np.float64]

#: Largest file, in bytes
LARGEST = 32 * 2**20

#: The arrays of a file, all of one dimension: over rounds, over updates, over inner products, over the one trial
_ARRAYS: Mapping[str, type] = {
    "rounds": np.int64, "sizes": np.int64, "aggregated": np.bool_,
    "clients": np.int64, "malicious": np.bool_, "weights": np.float64, "inner": np.float64, "trial": np.str_,
}  # fmt: skip

#: Errors of `zipfile` and numpy on a file that is damaged or encrypted
_NO_ARRAYS = (OSError, ValueError, KeyError, EOFError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True, eq=False)
class KeptRound:
    """The n updates that reached the server in one round, and their aggregate.

    Attributes:
        round: from 1.
        clients: the client behind each update.
        malicious: bool ``[n]``: whether it acted for the attack.
        weights: float64 ``[n]``: the weight of each update in the aggregate; None if the rule has no weights, or without one.
        inner: float64 ``[k, k]``: inner products about a common reference point, of the updates, then of the aggregate if there
            is one, then of two vectors that are the same in all rounds (`fedguard.metrics.plane`: the axes of the first kept
            round), then of the origin, which is the model before the round.
        aggregated: whether there is an aggregate.
    """

    round: int
    clients: tuple[int, ...]
    malicious: NDArray[np.bool_]
    weights: Floats | None
    inner: Floats
    aggregated: bool


def size_of(updates: int, rounds: int) -> int:
    """Bytes of the inner products of this number of rounds."""
    return 8 * rounds * (updates + 4) ** 2


def save(folder: RunFolder, cell: str, seed: int, rounds: Sequence[KeptRound]) -> None:
    """Write the kept rounds of a trial.

    Raises:
        OSError: the folder cannot be written.
    """
    unknown = [np.full(len(one.clients), np.nan) if one.weights is None else one.weights for one in rounds]
    arrays = {
        "rounds": [one.round for one in rounds], "sizes": [len(one.clients) for one in rounds],
        "aggregated": [one.aggregated for one in rounds], "clients": [client for one in rounds for client in one.clients],
        "malicious": _join([one.malicious for one in rounds]), "weights": _join(unknown),
        "inner": _join([one.inner.ravel() for one in rounds]), "trial": [_name(cell, seed)],
    }  # fmt: skip
    written = io.BytesIO()
    typed: dict[str, Any] = {name: np.asarray(arrays[name], kind) for name, kind in _ARRAYS.items()}
    np.savez(written, **typed)
    write_atomically(folder.replay_path(cell, seed), written.getvalue())


def load(folder: RunFolder, cell: str, seed: int) -> list[KeptRound]:
    """The kept rounds of a trial, in their order.

    Raises:
        StoreError: the file is too large, or does not hold what was expected, in one line.
    """
    path = folder.replay_path(cell, seed)
    try:
        arrays = _read(path)
        if arrays["trial"].tolist() != [_name(cell, seed)]:  # a file that was copied
            raise ValueError("it is the replay of another trial")
        return list(_split(arrays))
    except _NO_ARRAYS as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise StoreError(f"{path}: cannot be replayed: {why}. Remove it, and run the suite again.") from None


def _name(cell: str, seed: int) -> str:
    return f"{cell} {seed}"


def _join(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    return np.concatenate(parts) if parts else np.empty(0)


def _read(path: Path) -> Mapping[str, NDArray[np.generic]]:
    file = io.BytesIO(content(path, LARGEST))
    with zipfile.ZipFile(file) as archive:
        size = sum(one.file_size for one in archive.infolist())
    if size > LARGEST:
        raise ValueError(f"expected at most {LARGEST:,} bytes of arrays; got {size:,}")
    with np.load(file, allow_pickle=False) as found:
        arrays = {name: found[name] for name in _ARRAYS}
    for name, kind in _ARRAYS.items():
        if arrays[name].ndim != 1 or not np.issubdtype(arrays[name].dtype, kind):
            raise ValueError(f"{name}: expected one row of {kind.__name__}; got {arrays[name].dtype}")
    return arrays


def _split(arrays: Mapping[str, NDArray[np.generic]]) -> Iterator[KeptRound]:
    rounds, sizes, aggregated = (arrays[name].tolist() for name in ("rounds", "sizes", "aggregated"))
    if not len(rounds) == len(sizes) == len(aggregated) or min(sizes, default=1) < 1:
        raise ValueError("sizes: expected one above 0 for each round")
    if rounds != sorted(set(rounds)) or min(rounds, default=1) < 1:
        raise ValueError("rounds: expected ascending numbers from 1")
    ends = np.cumsum(sizes)[:-1]
    shapes = [n + one + 3 for n, one in zip(sizes, aggregated, strict=True)]
    if any(len(arrays[name]) != sum(sizes) for name in ("clients", "malicious", "weights")):
        raise ValueError(f"expected {sum(sizes)} updates in each array")
    if len(arrays["inner"]) != sum(k * k for k in shapes) or not np.isfinite(arrays["inner"]).all():
        raise ValueError("inner: expected finite inner products of all updates")
    parts = zip(
        rounds, aggregated, shapes, *(np.split(arrays[name], ends) for name in ("clients", "malicious", "weights")),
        np.split(arrays["inner"], np.cumsum([k * k for k in shapes])[:-1]), strict=rounds != [],
    )  # fmt: skip
    for round, one, k, clients, malicious, weights, inner in parts:
        square = inner.reshape(k, k)
        if not np.allclose(square, square.T):
            raise ValueError(f"inner: expected symmetric inner products in round {round}")
        known = None if np.isnan(weights).all() else weights
        if known is not None and not np.isfinite(known).all():
            raise ValueError(f"weights: expected finite numbers in round {round}")
        yield KeptRound(round, tuple(clients.tolist()), malicious, known, square, one)
