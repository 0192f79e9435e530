"""Where the time of a run goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st
from fedguard.app import address
from fedguard.app.charts.profile import coloured, profile
from fedguard.app.here import Here, empty

from fedguard.bench.profile import SHOWN, Part, meanings, together
from fedguard.bench.run import Run

#: Bars of one chart.
_DRAWN = 60

_ALL = "all"

#: What the cells can be chosen by.
_MENUS: Mapping[str, Callable[[Part], str]] = {
    "attack": lambda part: part.swept["attack"],
    "defense": lambda part: part.swept["defense"],
    "setting": lambda part: part.setting,
}


def show(here: Here) -> None:
    """The stages as a table, and a bar for each cell of the filter, cut by stage."""
    run = here.run()
    found = run.profile()
    if found.untimed or not found.cells:
        st.caption(found.without())
    if found.whole is None:
        empty("There are no times to show.", "fedguard run examples/quick.yaml")
        return
    parts = _chosen(found.cells)
    if not parts:
        st.info("No cell of this choice was timed. Choose other values.")
        return
    _stages(parts)
    _drawn(run, parts, coloured(found.whole))
    with st.expander("Every cell as a table"):
        st.dataframe([_row(part) for part in parts], hide_index=True, width="stretch")


def _chosen(parts: Sequence[Part]) -> list[Part]:
    """The cells that the menus leave; there is no menu for what all have in common. Corners have a place in none."""
    chosen = list(parts)
    known = {what: list(dict.fromkeys(of(part) for part in parts if part.swept)) for what, of in _MENUS.items()}
    menus = {what: values for what, values in known.items() if len(values) > 1}
    for column, (what, values) in zip(st.columns(max(1, len(menus))), menus.items(), strict=False):
        value = address.menu(what.capitalize(), [_ALL, *values], f"time_{what}", place=column)
        chosen = [part for part in chosen if value == _ALL or (part.swept and _MENUS[what](part) == value)]
    return chosen


def _drawn(run: Run, parts: Sequence[Part], stages: Sequence[str]) -> None:
    shown = parts[:_DRAWN]
    few = f" The {_DRAWN} slowest of {len(parts)} cells; the table below has all." if len(shown) < len(parts) else ""
    st.subheader("Cell by cell")
    st.caption(f"The mean over the trials of each cell, the slowest first. Point at a piece to read it.{few}")
    says = f"{run.name}: milliseconds per round by stage, one bar for each of {len(shown)} cells"
    st.altair_chart(profile(shown, stages), width="stretch", alt=says)


def _stages(parts: Sequence[Part]) -> None:
    """What the cells took together, stage by stage."""
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


def _row(part: Part) -> dict[str, Any]:
    """A cell in a line: its trials, and milliseconds per round in all and in each stage."""
    return {
        "cell": part.place,
        "trials": part.trials,
        "s per trial": round(part.seconds / part.trials, 3),
        "ms per round": round(part.ms_per_round, 2),
        **{row["stage"].replace("_", " "): round(row["ms_per_round"], 2) for row in part.rows()},
    }
