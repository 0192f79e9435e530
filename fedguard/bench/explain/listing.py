"""The output of `list`: every algorithm in a line, without loading FedGuard's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from fedguard.bench.terminal.printed import lines
from fedguard.errors import UnknownName
from fedguard.registry import BUILT_IN, KINDS, Registry


def kinds_named(kind: str | None) -> list[str]:
    """``["attack"]`` for "attack" or "attacks"; every kind for None.

    Raises:
        UnknownName: no such kind.
    """
    if kind is None:
        return list(KINDS)
    name = kind if kind in KINDS else kind.removesuffix("s")
    if name not in KINDS:
        raise UnknownName("kind", kind, KINDS)
    return [name]


def listing(known: Registry, kinds: Sequence[str]) -> RenderableType:
    """Every algorithm of these kinds, for people: a line for each."""
    parts = (part for kind in kinds for part in _list_algorithms(known, kind))
    return Group(
        *parts, Text("`fedguard explain NAME` tells what one needs to see, its formula and its source.", "dim")
    )


def summary(known: Registry, kind: str, name: str) -> str:
    """The first line of an algorithm's docstring.

    The line of FedGuard's own is read from its source, since loading some 300 of them, with torch, takes seconds. Others are
    loaded, and so is one whose source is not at hand.
    """
    if known.origin(kind, name) == BUILT_IN:
        module, _, cls = known.entries[kind][name].place.partition(":")
        source = _source_file(module)
        text = source.read_text(encoding="utf-8") if source.is_file() else ""
        if found := re.search(rf'^class {cls}\b[^"]*?:\n    r?"""(.*?)(?:"""|$)', text, flags=re.M):
            return found[1]
    return known.get(kind, name).summary()


def _source_file(module: str) -> Path:
    """Where the source of a module lies, which is not loaded, nor the packages that hold it unless they are already."""
    parts = module.split(".")
    held = next(end for end in range(len(parts) - 1, 0, -1) if ".".join(parts[:end]) in sys.modules)
    path = Path(sys.modules[".".join(parts[:held])].__path__[0], *parts[held:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _list_algorithms(known: Registry, kind: str) -> Iterator[RenderableType]:
    origins = {name: known.origin(kind, name) for name in known.names(kind)}
    brought = {name: "" if origin == BUILT_IN else f"({origin}) " for name, origin in origins.items()}
    yield Text(f"{kind}, {len(origins)}", "bold")
    yield lines({name: brought[name] + summary(known, kind, name) for name in origins})
