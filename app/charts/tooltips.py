"""The text for a mark under the pointer."""

from __future__ import annotations

import altair as alt


def tooltips(*shown: str | alt.Tooltip) -> list[alt.Tooltip]:
    """Fields by their names (``"defense:N"``), or with a title and a format. Explicit tooltips are faster than bare names."""
    return [alt.Tooltip(one) if isinstance(one, str) else one for one in shown]
