"""Names of keys and values in earlier versions of suites: accepted, and written as they are called now.

The identity of a cell keeps the old names (`as_stored`), so that stored records remain those of their cells.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedguard.config.document import Document, Key
from fedguard.errors import ConfigError
from fedguard.retired import (
    RETIRED_KEYS,
    RETIRED_PARAMETERS,
    RETIRED_VALUES,
    STORED_VALUES,
    renew_key_text,
    renew_spec,
    store_spec,
)

#: Keys whose mapping names an algorithm: there `kind:` was another word for `name:`
ALGORITHMS = (
    "task.data",
    "task.model",
    "task.partition",
    "architecture",
    "attack",
    "defense",
    "training.algorithm",
    "protocol.secure_aggregation",
    "protocol.privacy",
    "network.availability",
    "evaluation.evasion",
)

Renamed = list[tuple[str, str]]


def renew_document(document: Document) -> tuple[Document, Renamed]:
    """The document with today's names, and the old names in it with the new ones.

    Raises:
        ConfigError: a key is given under both names.
    """
    try:
        data, renamed = renew(document.data)
    except ValueError as error:
        raise ConfigError(f"{document.where()}: {error}." if document.where() else f"{error}.") from None
    lines = {renew_key(key): line for key, line in document.lines.items()}
    settings = frozenset(map(renew_key, document.settings))
    return dataclasses.replace(document, data=data, lines=lines, settings=settings), renamed


def renew(data: Mapping[str, Any]) -> tuple[dict[str, Any], Renamed]:
    """The settings with today's names, and the old names in them with the new ones.

    Raises:
        ValueError: a key is given under both names.
    """
    renamed: Renamed = []
    matrix = data.get("matrix")
    found = {key: value if key == "matrix" else _renew(key, value, renamed) for key, value in data.items()}
    if isinstance(matrix, Mapping):
        found["matrix"] = {}
        for key, values in matrix.items():
            new = _renew_axis(str(key), data)
            if new != key:
                renamed.append((str(key), new))
            if new in found["matrix"]:
                raise ValueError(f"matrix: expected {new} alone; got its old name beside it")
            found["matrix"][new] = (
                [_renew(new, value, renamed) for value in values] if isinstance(values, list) else values
            )
    return found, renamed


def renew_key(key: Key) -> Key:
    """A key with today's names: ``("network", "there")``, or ``("matrix", "network.there", 2)``."""
    if key[:1] == ("matrix",) and len(key) > 1:
        return ("matrix", renew_key_text(str(key[1])), *key[2:])
    for old, new in RETIRED_KEYS.items():
        parts = tuple(old.split("."))
        if key[: len(parts)] == parts:
            return (*new.split("."), *key[len(parts) :])
    return key


def as_stored(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a cell's identity with the values under which earlier versions stored it."""
    for path, stored in STORED_VALUES.items():
        section, key = path.split(".")
        below = content.get(section)
        if isinstance(below, dict) and key in below:
            value = below[key]
            below[key] = [stored.get(one, one) for one in value] if isinstance(value, list) else (
                stored.get(value, value) if isinstance(value, str) else value
            )  # fmt: skip
    for path in ALGORITHMS:
        *sections, key = path.split(".")
        within: Any = content
        for section in sections:
            within = within.get(section) if isinstance(within, dict) else None
        if isinstance(within, dict) and key in within:
            within[key] = store_spec(within[key])
    return content


def _renew(path: str, value: Any, renamed: Renamed) -> Any:
    """The value at a dotted key, with today's names below it."""
    if isinstance(value, list):
        return [_renew(path, one, renamed) for one in value]
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, below in value.items():
            at = f"{path}.{key}"
            new = RETIRED_KEYS.get(at, at)
            if path in ALGORITHMS and key == "kind" and "name" not in value:
                new = f"{path}.name"
            name = key if new == at else new.rpartition(".")[2]  # a key may hold a point, as seconds_to(0.8)
            if new != at:
                renamed.append(("kind:", "name:") if key == "kind" else (at, new))
                if name in value:
                    raise ValueError(f"expected {new} alone; got its old name {at} beside it")
            found[name] = _renew(path if name == "name" and path in RETIRED_VALUES else new, below, renamed)
        return renew_spec(found, renamed) if path in ALGORITHMS else found
    values = RETIRED_VALUES.get(path, {})
    # True == 1 in Python, and a key of the table may be False
    for old, today in values.items():
        if old is value or (isinstance(old, str) and old == value):
            name = path.rpartition(".")[2]
            renamed.append((f"{name}: {str(value).lower()}", f"{name}: {today}"))
            return today
    return renew_spec(value, renamed) if path in ALGORITHMS else value


def _renew_axis(key: str, data: Mapping[str, Any]) -> str:
    """A swept key with today's names."""
    new = renew_key_text(key)
    parent, _, last = new.rpartition(".")
    if parent not in ALGORITHMS:
        return new
    base: Any = data
    for part in parent.split("."):
        base = base.get(part) if isinstance(base, Mapping) else None
    named = base.get("name") if isinstance(base, Mapping) else base
    if last == "kind" and not (isinstance(base, Mapping) and "name" in base):
        return f"{parent}.name"  # an algorithm named beside it may have a parameter of this name
    return f"{parent}.{RETIRED_PARAMETERS.get(str(named), {}).get(last, last)}"
