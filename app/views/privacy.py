"""The privacy of the chosen run (`fedguard.bench.pages.privacy`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.privacy import PRIVACY


def show(here: PageContext) -> None:
    """The blocks of the page."""
    blocks.draw(PRIVACY.blocks(here.run(), st.query_params.to_dict()), here)
