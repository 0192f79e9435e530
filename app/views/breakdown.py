"""A metric over a swept key (`fedguard.bench.pages.breakdown`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.breakdown import BREAKDOWN


def show(here: PageContext) -> None:
    """The blocks of the breakdown."""
    blocks.draw(BREAKDOWN.blocks(here.run(), st.query_params.to_dict()), here)
