"""What there is to be looked at in the dashboard: every page, and every part of a page that has parts."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

from fedguard.app import views as package
from fedguard.app.views import NavigationEntry, pages


@dataclass(frozen=True)
class View:
    """A page, and what its address says beside the run."""

    page: NavigationEntry
    query: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.page.name

    def __str__(self) -> str:
        return "-".join([self.name, *(part.lower().replace(" ", "-") for part in self.query.values())])


def _of(page: NavigationEntry) -> list[View]:
    parts = getattr(importlib.import_module(f"{package.__name__}.{page.name}"), "PARTS", {})
    return [View(page, {page.name: part}) for part in parts] or [View(page)]


VIEWS = [view for page in pages().values() for view in _of(page)]
