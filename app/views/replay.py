"""The rounds of a trial of the chosen run (`fedguard.bench.pages.replay`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.replay import REPLAY


def show(here: PageContext) -> None:
    """The blocks of the page."""
    blocks.draw(REPLAY.blocks(here.run(), st.query_params.to_dict()), here)
