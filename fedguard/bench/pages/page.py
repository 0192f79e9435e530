"""What a page is: a name and a function from a run and the reader's choices to blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from fedguard.bench.pages.blocks import Address, Block
from fedguard.bench.results.run import Run


@dataclass(frozen=True)
class Page:
    """A page of a run. It knows no renderer; its first block is the verdict."""

    name: str
    title: str
    blocks: Callable[[Run, Address], Iterator[Block]]


#: The pages of a run, each in the module of its name
PAGES = ("overview", "matrix", "cell", "breakdown", "privacy", "secagg", "replay", "compare", "gate")


def page(name: str) -> Page:
    """The page of this name, whose module is loaded when it is asked for."""
    found: Page = getattr(import_module(f"fedguard.bench.pages.{name}"), name.upper())
    return found


def keys_beside(name: str, run: Run) -> tuple[str, ...]:
    """The keys of the address that a page reads and offers no choice for: what names a cell, or what a command sets."""
    if name in ("cell", "replay"):
        return "cell", "attack", "defense", *run.swept
    return ("over", "metric") if name == "breakdown" else ()
