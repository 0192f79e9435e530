"""Digests of the code and data behind a record, so that results of code that has changed since are recognized."""

from __future__ import annotations

import contextlib
import hashlib
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fedguard.contracts.user_function import FAILURES
from fedguard.errors import FedGuardError
from fedguard.modules import load_module
from fedguard.rng import Rng, global_generators

if TYPE_CHECKING:
    from fedguard.config import PlannedCell
    from fedguard.contracts import Algorithm, Data, Model, Source

#: Parts of FedGuard that read results and make none; of bench, its rooms.
READERS = ("app", "commands", "examples")
READING_ROOMS = (
    "acceptance",
    "controls",
    "results",
    "flags",
    "audits",
    "tuning",
    "gate",
    "explain",
    "terminal",
    "conformance",
)
#: Where installed modules lie, beside hundreds that are none of ours.
_INSTALLED = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib", "stdlib")}


def code_of(cell: PlannedCell) -> dict[str, str]:
    """A digest for ``fedguard``, and one for each third-party top-level module with algorithms of the cell.

    A package is digested with all its Python files, a module with those beside it, which it may import; of an installed module
    only its own file. What they import from elsewhere is not digested. A trace of when devices are there is, under
    ``network.there``, a graph, under ``architecture``, and an app, under ``app``; so are the weights of the user's own network
    that no training moves, under ``frozen weights``: they may come from a file.
    """
    return {
        "fedguard": own_code(),
        **{name: _of_module(name, cell.known.folder) for name in sorted(modules_of(cell))},
        **({} if cell.availability.digest is None else {"network.there": cell.availability.digest}),
        **({} if cell.architecture.digest is None else {"architecture": cell.architecture.digest}),
        **{name: _digest(files) for name, files in cell.files().items()},
        **_digest_frozen(cell),
    }


def parts_of(cell: PlannedCell) -> list[Algorithm]:
    """The parts of a cell that may be third-party code."""
    parts: list[Algorithm | None] = [cell.data, cell.model, cell.partition, cell.architecture, cell.masking, cell.noise]
    parts += [
        cell.algorithm,
        cell.named,
        *cell.pipeline.stages,
        cell.availability,
    ]
    return [part for part in parts if part is not None]


def modules_of(cell: PlannedCell) -> frozenset[str]:
    """The third-party top-level modules with algorithms and functions of a cell."""
    return frozenset[str]().union(*(part.modules for part in parts_of(cell))) - {"fedguard"}


@lru_cache(maxsize=1)
def own_code() -> str:
    """The digest of FedGuard's own code, including attacks and defenses."""
    folders = [Path(folder) for part in ("", ".attacks", ".defenses") for folder in _folders(f"fedguard{part}")]
    inside = {file: file.relative_to(folder).parts for folder in folders for file in folder.rglob("*.py")}
    files = [
        file for file, parts in inside.items()
        if parts[0] not in READERS and (parts[0] != "bench" or parts[1] not in READING_ROOMS)
    ]  # fmt: skip
    assert files, f"none of FedGuard's files is in {folders}"
    return _digest(files)


def data_digest(data: Source) -> str | None:
    """A digest of every example of a data set with its label and natural client, train and test; None where none can be loaded,
    or where actors act in an environment.

    The digest of the user's own data covers classes and range as well, which no parameter tells.
    """
    from fedguard.contracts import Data

    if isinstance(data, Data):
        with contextlib.suppress(FedGuardError):
            return _of_data(data)
    return None


@lru_cache(maxsize=8)
def _of_data(data: Data) -> str:
    from fedguard.tasks.data import load_dataset

    found, digest = load_dataset(data), hashlib.sha256()
    clients = [part for part in (found.train.client, found.test.client) if part is not None]
    for part in (found.train.x, found.train.y, found.test.x, found.test.y, *clients):
        digest.update(str((part.dtype, tuple(part.shape))).encode())
        digest.update(part.contiguous().numpy().tobytes())
    if data.outside:
        digest.update(str((found.classes, found.value_range, found.tokens is not None)).encode())
        padding = found.tokens and found.tokens.padding
        digest.update(b"" if padding is None else f"padding {padding}".encode())
    return digest.hexdigest()[:16]


def _digest_frozen(cell: PlannedCell) -> dict[str, str]:
    from fedguard.contracts import Data
    from fedguard.tasks.compute import computing_in

    if not isinstance(cell.data, Data) or not cell.model.modules - {"fedguard"}:
        return {}
    with contextlib.suppress(FedGuardError, *FAILURES), global_generators(Rng(0)), computing_in("float32"):
        digest = _of_weights(cell.model, cell.data)
        return {} if digest is None else {"frozen weights": digest}
    return {}


@lru_cache(maxsize=8)
def _of_weights(model: Model, data: Data) -> str | None:
    from fedguard.tasks.data import load_dataset
    from fedguard.tasks.network import FlatNetwork

    found = load_dataset(data)
    return FlatNetwork(model, found.shape, found.classes, Rng(0), tokens=found.tokens).digest_frozen()


def forget_data() -> None:
    """Drop the cached digests of the user's own data and weights: their files may change during a session."""
    from fedguard.tasks.data import forget

    forget()
    _of_data.cache_clear()
    _of_weights.cache_clear()


def _of_module(name: str, beside: Path | None) -> str:
    folders = _folders(name, beside)
    if folders:
        return _digest(file for folder in folders for file in Path(folder).rglob("*.py"))
    file = getattr(_try_import(name, beside), "__file__", None)
    if file is None:
        return _digest([])
    return _digest(Path(file).parent.glob("*.py") if Path(file).parent not in _INSTALLED else [Path(file)])


def _folders(package: str, beside: Path | None = None) -> list[str]:
    return list(getattr(_try_import(package, beside), "__path__", []))


def _try_import(name: str, beside: Path | None) -> ModuleType | None:
    """The module; None if it cannot be imported, which raises an error wherever it is needed."""
    with contextlib.suppress(*FAILURES):
        return load_module(name, beside)
    return None


def _digest(files: Iterable[Path]) -> str:
    """Of the files' names and contents, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda one: (one.name, str(one))):
        digest.update(file.name.encode() + b"\0" + _content(file, file.stat().st_mtime_ns))
    return digest.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _content(file: Path, changed: int) -> bytes:  # noqa: ARG001  part of the cache's key
    return hashlib.sha256(file.read_bytes()).digest()
