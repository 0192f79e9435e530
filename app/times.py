"""The time of a cell by stage, and of all cells of its run: a part of the page of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedguard.app.charts.profile import profile, select_stages
from fedguard.bench.results.profile import SHOWN, ProfileEntry, meanings, together
from fedguard.bench.results.run import Run

#: Largest number of bars in one chart
_DRAWN = 60


def times(run: Run, swept: Mapping[str, Any]) -> None:
    """The stages of this cell as a bar and a table; then a bar for each cell of the run.

    Args:
        swept: the cell's position in the matrix.
    """
    found = run.profile()
    if found.whole is None:
        st.caption(found.without())
        return
    stages = select_stages(found.whole)
    if own := [part for part in found.cells if part.swept == swept]:
        st.altair_chart(
            profile(own, stages), width="stretch", alt=f"{run.name}: milliseconds per round of this cell by stage"
        )
        _stages(own)
    if found.untimed:
        st.caption(found.without())
    if st.toggle("Every cell of the run", key="times of every cell"):
        _draw_profile(run, found.cells, stages)
        st.dataframe([_row(part) for part in found.cells], hide_index=True, width="stretch")


def _draw_profile(run: Run, parts: Sequence[ProfileEntry], stages: Sequence[str]) -> None:
    shown = parts[:_DRAWN]
    few = f" The {_DRAWN} slowest of {len(parts)} cells; the table below has all." if len(shown) < len(parts) else ""
    st.caption(f"The mean over the trials of each cell, the slowest first. Point at a piece to read it.{few}")
    says = f"{run.name}: milliseconds per round by stage, one bar for each of {len(shown)} cells"
    st.altair_chart(profile(shown, stages), width="stretch", alt=says)


def _stages(parts: Sequence[ProfileEntry]) -> None:
    """The total time of the cells, stage by stage."""
    whole = together(parts)
    st.caption(
        f"{whole.words()}. What is done once in a trial is spread over its rounds. The first trial of a worker process pays "
        "for what those after it find ready, such as the data."
    )
    known = meanings()
    table = [
        {
            **row,
            "stage": row["stage"].replace("_", " "),
            "share": 100 * row["share"],
            "what it is": known.get(row["stage"], ""),
        }
        for row in whole.rows(SHOWN)
    ]
    columns: dict[str, Any] = {
        "share": st.column_config.NumberColumn("share, %", format="%.1f"),
        "ms_per_round": st.column_config.NumberColumn("ms per round", format="%.2f"),
        "seconds_per_trial": st.column_config.NumberColumn("s per trial", format="%.3f"),
        "cpu_seconds_per_trial": st.column_config.NumberColumn("CPU s per trial", format="%.3f"),
        "calls_per_trial": st.column_config.NumberColumn("calls per trial", format="%.1f"),
    }
    st.dataframe(table, hide_index=True, width="stretch", height="content", column_config=columns)


def _row(part: ProfileEntry) -> dict[str, Any]:
    """A cell as a row: its trials, and milliseconds per round in total and in each stage."""
    return {
        "cell": part.place,
        "trials": part.trials,
        "s per trial": round(part.seconds / part.trials, 3),
        "ms per round": round(part.ms_per_round, 2),
        **{row["stage"].replace("_", " "): round(row["ms_per_round"], 2) for row in part.rows()},
    }
