"""One attack against one defense (`fedguard.bench.pages.cell`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.cell import CELL


def show(here: PageContext) -> None:
    """The blocks of the cell that the address names."""
    blocks.draw(CELL.blocks(here.run(), st.query_params.to_dict()), here)
