"""Two runs, seed by seed (`fedguard.bench.pages.compare`)."""

from __future__ import annotations

from functools import partial

import streamlit as st

from fedguard.app import blocks, data
from fedguard.app.here import PageContext
from fedguard.bench.pages.compare import blocks as compared


def show(here: PageContext) -> None:
    """The blocks of the comparison; the other run is kept in memory, too."""
    blocks.draw(compared(here.run(), st.query_params.to_dict(), partial(data.open_run, here.store)), here)
