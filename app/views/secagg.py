"""Secure aggregation in the chosen run (`fedguard.bench.pages.secagg`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.secagg import SECAGG


def show(here: PageContext) -> None:
    """The blocks of the page."""
    blocks.draw(SECAGG.blocks(here.run(), st.query_params.to_dict()), here)
