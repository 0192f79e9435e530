"""What Streamlit's theme has no setting for, as style sheets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

#: Less white above the title, so that the answer stands on the first screen; text of charts in the colour of the page's.
_PAGE = """<style>
[data-testid=stMainBlockContainer] { padding-top: 3.5rem; }
[data-testid=stVegaLiteChart] :is(.role-axis-label, .role-axis-title, .role-legend-label, .role-legend-title, .role-title,
    .role-column-title, .role-row-title) text {
    fill: currentColor;
}
[data-testid=stVegaLiteChart] .mark-text text[fill="#8C8C8C"] { fill: currentColor; }
[data-testid=stCode] .token { color: inherit !important; }
[data-testid=stCaptionContainer] code { color: inherit; }
</style>"""

#: Chips and buttons of the primary colour, which is bright on dark: Streamlit writes on them in white.
_DARK = """<style>
:is([data-tag], [data-tag] *, [data-testid=stBaseButton-primary]:not(:disabled)) { color: #0a0a0a !important; }
</style>"""


def page() -> None:
    """For every page."""
    st.html(_PAGE)
    if st.context.theme.type == "dark":
        st.html(_DARK)


@contextmanager
def sideways(key: str, width: int) -> Iterator[None]:
    """What is drawn within is as wide as the page, but at least so many pixels; where that is more, it scrolls by itself."""
    st.html(f"<style>.st-key-{key} {{ overflow-x: auto; }} .st-key-{key} > div {{ min-width: {width}px; }}</style>")
    with st.container(key=key):
        yield
