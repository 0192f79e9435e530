"""To be written."""

from __future__ import annotations

from fedguard.app.here import Here


def show(here: Here) -> None:
    """Nothing yet."""
