"""The gate's verdicts on the chosen run (`fedguard.bench.pages.gate`)."""

from __future__ import annotations

import streamlit as st

from fedguard.app import blocks
from fedguard.app.here import PageContext
from fedguard.bench.pages.gate import GATE


def show(here: PageContext) -> None:
    """The blocks of the verdict, and of all verdicts."""
    blocks.draw(GATE.blocks(here.run(), st.query_params.to_dict()), here)
