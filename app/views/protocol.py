"""Secure aggregation, a round message by message (`fedguard.bench.pages.protocol`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.protocol import blocks as protocol


def show(here: PageContext) -> None:
    """The blocks of the page, which are the same for every run."""
    blocks.draw(protocol(None, st.query_params.to_dict()), here)
