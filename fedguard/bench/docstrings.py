"""Reads docstrings: the description of a class, and of each of its parameters and fields."""

from __future__ import annotations

import inspect
import re


def prose(docstring: str) -> str:
    """A docstring without its sections of arguments and attributes."""
    return re.split(r"^(?:Args|Attributes|Raises|Returns):$", inspect.cleandoc(docstring), maxsplit=1, flags=re.M)[
        0
    ].strip()


def plain(text: str) -> str:
    """A docstring's text for terminals: without the signs around its formulae, which the site sets as such."""
    return text.replace("$", "")


def meaning(of: type, name: str) -> str:
    """The description of a name in the docstring of a class, or of the base class that defines it."""
    said = (_meanings(base.__dict__.get("__doc__") or "").get(name) for base in of.__mro__)
    return next((text for text in said if text), "")


def _meanings(docstring: str) -> dict[str, str]:
    """The descriptions under ``Args:`` or ``Attributes:``, by name."""
    found: dict[str, str] = {}
    sections = re.split(r"^(\w+):$", inspect.cleandoc(docstring), flags=re.M)
    for heading, body in zip(sections[1::2], sections[2::2], strict=True):
        if heading in ("Args", "Attributes"):
            for names, said in re.findall(r"^    ([\w, -]+): (.*(?:\n {5,}.*)*)", body, flags=re.M):
                found |= {name.strip(): " ".join(said.split()) for name in names.split(",")}
    return found
