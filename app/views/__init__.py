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
        about: one sentence, shown under its title.
        reads: what it requires: a chosen ``run``, or nothing.
        answers: whether its heading is the answer of the run, instead of its title.
    """

    name: str
    title: str
    icon: str
    about: str
    reads: Literal["run", "nothing"] = "run"
    answers: bool = False

    @property
    def show(self) -> Callable[[PageContext], None]:
        """The function that draws the page; its module is loaded when the page is first shown."""
        found: Callable[[PageContext], None] = import_module(f"{__name__}.{self.name}").show
        return found


#: Pages by section of the navigation
PAGES: dict[str, tuple[NavigationEntry, ...]] = {
    "A run": (
        NavigationEntry(
            "overview",
            "Overview",
            "home",
            "What came out, and what speaks against quoting it.",
            "nothing",
            answers=True,
        ),
        NavigationEntry(
            "matrix", "Matrix", "grid_on", "Every attack against every defense, and the worst of them.", answers=True
        ),
        NavigationEntry(
            "cell",
            "Cell",
            "science",
            "One attack against one defense: how it went, under which assumptions, and what it took.",
            answers=True,
        ),
        NavigationEntry(
            "breakdown", "Breakdown", "trending_down", "A metric over a key that the suite sweeps.", answers=True
        ),
        NavigationEntry(
            "privacy",
            "Privacy",
            "lock",
            "What each protection claims, what still leaks, and whether the claim holds.",
            answers=True,
        ),
        NavigationEntry("secagg", "Secure aggregation", "hub", "What each mode hides, costs and leaves.", answers=True),
        NavigationEntry(
            "replay", "Round replay", "animation", "Updates, weights and the aggregate, round by round.", answers=True
        ),
    ),
    "Several runs": (
        NavigationEntry("compare", "Compare", "compare_arrows", "Two runs, seed by seed.", answers=True),
        NavigationEntry("gate", "Gate", "fact_check", "What the gate said, and what changed.", answers=True),
    ),
    "Understand": (
        NavigationEntry(
            "protocol",
            "Protocol, step by step",
            "conversion_path",
            "Who sees what under secure aggregation, message by message, and what it costs.",
            "nothing",
            answers=True,
        ),
        NavigationEntry(
            "catalogue", "Catalog", "menu_book", "Every attack and every defense, with its formula.", "nothing"
        ),
        NavigationEntry(
            "lab", "Lab", "experiment", "Put one cell together, see whether it is legal, and run it.", "nothing"
        ),
    ),
}


def pages() -> dict[str, NavigationEntry]:
    """All pages by name."""
    return {page.name: page for section in PAGES.values() for page in section}
