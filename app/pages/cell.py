"""One attack against one defense."""

from __future__ import annotations

import streamlit as st
from fedguard.app.charts.curves import curves
from fedguard.app.here import Here


def show(here: Here) -> None:
    """Curves, threat card and configuration of one cell."""
    records = [record for record in here.run().records.values() if record["status"] == "ok"]
    label = st.selectbox("Cell", list(dict.fromkeys(record["label"] for record in records)))
    chosen = [record for record in records if record["label"] == label]
    if not chosen:
        return
    st.altair_chart(curves(chosen), width="stretch")
    st.text(chosen[0]["threat_card"]["in_words"])
