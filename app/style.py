"""What Streamlit's theme has no setting for, as style sheets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st


@contextmanager
def sideways(key: str, width: int) -> Iterator[None]:
    """What is drawn within is as wide as the page, but at least so many pixels; where that is more, it scrolls by itself."""
    st.html(f"<style>.st-key-{key} {{ overflow-x: auto; }} .st-key-{key} > div {{ min-width: {width}px; }}</style>")
    with st.container(key=key):
        yield
