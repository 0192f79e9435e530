"""Where defenses break, over a swept number."""

from __future__ import annotations

import streamlit as st
from fedguard.app import data
from fedguard.app.here import Here, empty


def show(here: Here) -> None:
    """A figure over a swept key."""
    if not data.numeric_keys(here.run()):
        empty("This run sweeps no number.", "fedguard run examples/breakdown.yaml")
        return
    st.write("")
