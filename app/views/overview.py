"""The overview of the chosen run (`fedguard.bench.pages.overview`), then the other runs of the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import streamlit as st

from fedguard.app import blocks, data
from fedguard.app.data import Summary
from fedguard.app.here import PageContext, empty, plain
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.errors import FedGuardError


def show(here: PageContext) -> None:
    """The blocks of the overview."""
    if here.name is None:
        st.title("No run yet", anchor=False)
        empty(f"There is no run yet in {here.store.name}.", "fedguard run examples/quick.yaml")
        return
    try:
        blocks.draw(OVERVIEW.blocks(here.run(), st.query_params.to_dict()), here)
    except FedGuardError as error:
        st.title("The manifest of this run cannot be read", anchor=False)
        plain(str(error))
    _all_runs(here)


def _all_runs(here: PageContext) -> None:
    """All runs, last on the page, since reading a large store for the first time is slow."""
    with st.expander(f"Runs in this store ({len(data.run_names(here.store))})"):
        with st.spinner("Reading the other runs ..."):
            runs = [data.summary(here.store, name) for name in data.run_names(here.store)]
        columns = {
            "started": st.column_config.DatetimeColumn("started, UTC", format="YYYY-MM-DD HH:mm"),
            **{f"cells {status}": st.column_config.NumberColumn(width=95) for status in data.STATUSES},
        }
        st.dataframe([_run_row(found) for found in runs], hide_index=True, width="stretch", column_config=columns)
        if errors := [f"{found.name}: {found.error}" for found in runs if found.error]:
            plain("\n".join(errors))


def _run_row(found: Summary) -> dict[str, Any]:
    told = found.manifest
    return {
        "run": found.name,
        "started": None if told is None else datetime.fromtimestamp(told["started"], UTC).replace(tzinfo=None),
        "state": "cannot be read" if found.error else found.state,
        "seeds": None if told is None else len(told["seeds"]),
        **{f"cells {status}": found.cells.get(status) for status in reversed(data.STATUSES)},
        "damaged records": found.damaged,
        "FedGuard": "" if told is None else told["fedguard"],
    }
