"""Style sheets for what Streamlit's theme cannot set."""

from __future__ import annotations

import streamlit as st

from fedguard.bench.pages.tokens import STYLE, declare

#: Less space above the title, so that the answer is on the first screen; chart text in the page's text color
_PAGE = """<style>
[data-testid=stMainBlockContainer] { padding: 3.5rem clamp(16px, 3vw, 36px) 3rem; max-width: 1216px; }
:is([class*=st-key-wide], [class*=st-key-narrow]) svg { max-width: 100%; height: auto; }
[class*=st-key-narrow] { display: none; }
@media (max-width: 640px) { [class*=st-key-wide] { display: none; } [class*=st-key-narrow] { display: block; } }
[data-testid=stVegaLiteChart] :is(.role-axis-label, .role-axis-title, .role-legend-label, .role-legend-title, .role-title,
    .role-column-title, .role-row-title) text {
    fill: currentColor;
}
[data-testid=stVegaLiteChart] .mark-text text[fill="#8C8C8C"] { fill: currentColor; }
[data-testid=stCode] .token { color: inherit !important; }
[data-testid=stCaptionContainer] code { color: inherit; }
</style>"""

#: In dark mode Streamlit writes white on chips and buttons of the primary color, which is bright there
_DARK = """<style>
:is([data-tag], [data-tag] *, [data-testid=stBaseButton-primary]:not(:disabled)) { color: #0a0a0a !important; }
</style>"""


def page() -> None:
    """For every page."""
    dark = st.context.theme.type == "dark"
    st.html(f"<style>:root {{ {declare(dark)} }}{STYLE}</style>")
    st.html(_PAGE)
    if dark:
        st.html(_DARK)
