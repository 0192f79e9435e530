"""Every attack against every defense."""

from __future__ import annotations

import streamlit as st
from fedguard.app import data
from fedguard.app.charts.heatmap import heatmap
from fedguard.app.here import Here

from fedguard.bench.matrix import FIGURES


def show(here: Here) -> None:
    """One heatmap for each combination of the other swept keys."""
    run = here.run()
    figure = st.selectbox(
        "Figure", list(FIGURES), format_func=lambda key: FIGURES[key].title, key="figure", bind="query-params"
    )
    rows = data.rows(run)
    for block in dict.fromkeys(", ".join(f"{key} = {row[key]}" for key in run.swept) for row in rows):
        chosen = [row for row in rows if ", ".join(f"{key} = {row[key]}" for key in run.swept) == block]
        if block:
            st.subheader(block)
        st.altair_chart(heatmap(chosen, figure), width="stretch")
