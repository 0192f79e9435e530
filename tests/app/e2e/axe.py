"""axe-core on a page: which rules of WCAG 2 and of good practice it breaks, and which element breaks them.

axe-core is a package of npm, and no part of FedGuard: ``make axe`` puts it into ``build/axe``; `AXE` names another place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

from tests.root import ROOT

#: Parts of the window that Streamlit draws and that FedGuard cannot change
STREAMLIT = (
    '[data-testid="stSidebarNav"]',
    '[data-testid="stSidebarHeader"]',
    '[data-testid="stHeader"]',
    '[data-testid="stToolbar"]',
)

#: Everything that axe-core knows, but not its experiments
_RUN = """async streamlit => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.flatMap(rule => rule.nodes.map(node => {
        const element = document.querySelector(node.target[0]);
        return {
            rule: rule.id, impact: rule.impact, help: rule.help, element: node.html.slice(0, 200), why: node.failureSummary,
            foreign: streamlit.some(part => element?.closest(part)),
        };
    }));
}"""


@dataclass(frozen=True)
class Violation:
    """An element that breaks a rule.

    Attributes:
        rule: its name in axe-core, such as ``color-contrast``.
        impact: ``minor``, ``moderate``, ``serious`` or ``critical``.
        foreign: whether the element is in Streamlit's own navigation.
    """

    rule: str
    impact: str
    help: str
    element: str
    why: str
    foreign: bool

    def __str__(self) -> str:
        return f"{self.impact}: {self.rule} ({self.help}): {self.element}"


def script() -> Path | None:
    """The file of axe-core; None where it is not installed."""
    path = Path(os.environ.get("AXE") or ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js")
    return path if path.is_file() else None


def violations(page: Page, source: Path) -> Iterator[Violation]:
    """The elements of the page, as it is now, that break a rule."""
    page.evaluate(source.read_text())
    yield from (Violation(**one) for one in page.evaluate(_RUN, list(STREAMLIT)))
