"""Every attack against every defense (`fedguard.bench.pages.matrix`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.matrix import MATRIX


def show(here: PageContext) -> None:
    """The blocks of the matrix; a field is a link to its cell."""
    blocks.draw(MATRIX.blocks(here.run(), st.query_params.to_dict()), here)
