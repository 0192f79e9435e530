"""The pages, in the order of the navigation. A page is one module here with ``show(here)``, and one row in `PAGES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fedguard.app.here import PageContext


@dataclass(frozen=True)
class NavigationEntry:
    """One page in the navigation.

    Attributes:
        name: name of its module, and of its address: ``http://localhost:8501/matrix``.
        icon: name of a Material Symbol.
        reads: what it requires: a chosen ``run``, or nothing.
    """

    name: str
    title: str
    icon: str
    reads: Literal["run", "nothing"] = "run"

    @property
    def show(self) -> Callable[[PageContext], None]:
        """The function that draws the page; its module is loaded when the page is first shown."""
        found: Callable[[PageContext], None] = import_module(f"{__name__}.{self.name}").show
        return found


#: Pages by section of the navigation
PAGES: dict[str, tuple[NavigationEntry, ...]] = {
    "A run": (
        NavigationEntry("overview", "Overview", "home", "nothing"),
        NavigationEntry("matrix", "Matrix", "grid_on"),
        NavigationEntry("cell", "Cell", "science"),
        NavigationEntry("breakdown", "Breakdown", "trending_down"),
        NavigationEntry("privacy", "Privacy", "lock"),
        NavigationEntry("secagg", "Secure aggregation", "hub"),
        NavigationEntry("replay", "Round replay", "animation"),
    ),
    "Several runs": (
        NavigationEntry("compare", "Compare", "compare_arrows"),
        NavigationEntry("gate", "Gate", "fact_check"),
    ),
    "Understand": (
        NavigationEntry("protocol", "Protocol, step by step", "conversion_path", "nothing"),
        NavigationEntry("catalogue", "Catalog", "menu_book", "nothing"),
        NavigationEntry("lab", "Lab", "experiment", "nothing"),
    ),
}


def pages() -> dict[str, NavigationEntry]:
    """All pages by name."""
    return {page.name: page for section in PAGES.values() for page in section}
