"""Blocks of code in the pages of the documentation. A block with a title is a file, or what a command says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.root import ROOT


@dataclass(frozen=True)
class Block:
    """One block of code; ``title`` is empty for most."""

    language: str
    title: str
    text: str


def blocks(document: str) -> list[Block]:
    found = re.findall(
        r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', (ROOT / document).read_text(), re.MULTILINE | re.DOTALL
    )
    return [Block(*one) for one in found]


def shown(page: str, title: str) -> str:
    """The text of a file that a page of docs/ shows."""
    (text,) = (block.text for block in blocks(f"docs/{page}") if block.title == title)
    return text
