"""Style sheets for what Streamlit's theme cannot set."""

from __future__ import annotations

import streamlit as st

from fedguard.bench.pages.tokens import STYLE, declare

#: Less space above the title, so that the answer is on the first screen; chart text in the page's text color
_PAGE = """<style>
[data-testid=stMainBlockContainer] { padding: 3.5rem clamp(16px, 3vw, 36px) 3rem; max-width: 1216px; }
:is([class*=st-key-wide], [class*=st-key-narrow]) svg { max-width: 100%; height: auto; }
[class*=st-key-narrow] { display: none; }
[data-testid=stHeading] h1 { font-size: 27px; line-height: 1.22; font-weight: 680; padding: 0 0 8px; }
[data-testid=stHeading] h2 { font-size: 18.5px; line-height: 1.3; font-weight: 660; padding: 8px 0 4px; }
[data-testid=stColumn]:has(.st-key-lab-answer) { align-self: stretch; }
[data-testid=stColumn]:has(.st-key-lab-answer) > div { position: sticky; top: 3.5rem; height: auto; }
@media (max-width: 640px) { [class*=st-key-wide] { display: none; } [class*=st-key-narrow] { display: block; }
  [data-testid=stColumn]:has(.st-key-lab-answer) { order: -1; }
  [data-testid=stColumn]:has(.st-key-lab-answer) > div { position: static; } }
[data-testid=stVegaLiteChart] :is(.role-axis-label, .role-axis-title, .role-legend-label, .role-legend-title, .role-title,
    .role-column-title, .role-row-title) text {
    fill: currentColor;
}
[data-testid=stVegaLiteChart] .mark-text text[fill="#8C8C8C"] { fill: currentColor; }
[data-testid=stCode] .token { color: inherit !important; }
[data-testid=stCaptionContainer] code { color: inherit; }
</style>"""

#: On paper: no navigation, nothing that is folded away, and the colors of a light page
_PRINT = """@media print {
  :is([data-testid=stSidebar], [data-testid=stHeader], [data-testid=stToolbar], [data-testid=stButton],
    [data-testid=stExpander]:has(details:not([open]))) { display: none !important; }
  [data-testid=stApp], [data-testid=stMain], [data-testid=stApp] :is(h1, h2, h3, p, label, code, pre) {
    background: var(--ground) !important; color: var(--ink) !important; }
  [data-testid=stMainBlockContainer] { padding: 0; } .fg :is(figure, .check, dl > div, tr) { break-inside: avoid; }
}"""

#: In dark mode Streamlit writes white on chips and buttons of the primary color, which is bright there
_DARK = """<style>
:is([data-tag], [data-tag] *, [data-testid=stBaseButton-primary]:not(:disabled)) { color: #0a0a0a !important; }
</style>"""


def page() -> None:
    """For every page."""
    dark = st.context.theme.type == "dark"
    st.html(f"<style>:root {{ {declare(dark)} }}{STYLE}@media print {{ :root {{ {declare(False)} }} }}{_PRINT}</style>")
    st.html(_PAGE)
    if dark:
        st.html(_DARK)
