"""Differences between two configurations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def apart(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, str, str]]:
    """The dotted keys that differ, each with both values as text: ``training.lr``, ``0.1``, ``0.2``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from apart(old.get(key), new.get(key), f"{at}.{key}" if at else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and _are_mappings(*old, *new):
        for number, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from apart(was, now, f"{at}[{number}]")
    elif old != new:
        yield at, _plain(old), _plain(new)


def differences(old: Any, new: Any, at: str = "") -> list[str]:
    """The differences in words: ``training.lr was 0.1, is 0.2``."""
    return [f"{key} was {was}, is {now}" for key, was, now in apart(old, new, at)]


def _are_mappings(*values: Any) -> bool:
    return bool(values) and all(isinstance(one, dict) for one in values)


def _plain(value: Any) -> str:
    return "unset" if value is None else json.dumps(value) if isinstance(value, dict | list | bool) else str(value)
