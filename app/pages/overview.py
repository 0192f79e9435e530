"""What there is in the store, whether the chosen run is sound, and what came out of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit as st
from fedguard.app import data
from fedguard.app.here import Here, empty

from fedguard.bench.judging.lint import Finding
from fedguard.bench.run import Run


def show(here: Here) -> None:
    """Health, refusals and failures with their reasons, red flags."""
    if here.name is None:
        empty(f"There is no run yet in {here.store}.", "fedguard run examples/quick.yaml")
        return
    run = here.run()
    _health(run)
    _lists(run)


def _health(run: Run) -> None:
    counts = {status: len(run.with_status(status)) for status in ("ok", "refused", "failed", "missing")}
    for column, (status, count) in zip(st.columns(4), counts.items(), strict=True):
        column.metric(status, count)
    if run.broken:
        st.warning(f"{len(run.broken)} records are damaged and left out. Run the suite again to replace them.")


def _lists(run: Run) -> None:
    for status, heading in (("refused", "Refused, and why"), ("failed", "Failed")):
        rows = {(row["attack"], row["defense"], row["reason"]): None for row in run.with_status(status)}
        if rows:
            st.subheader(heading)
            st.dataframe(
                [dict(zip(("attack", "defense", "reason"), row, strict=True)) for row in rows], hide_index=True
            )
    found = data.flags(run)
    if found.findings:
        st.subheader(f"Red flags ({len(found.findings)})")
        st.dataframe([_flag_row(finding) for finding in found.findings], hide_index=True)
    with st.expander("What could not be judged"):
        st.dataframe([asdict(one) for one in found.not_judged], hide_index=True)


def _flag_row(finding: Finding) -> dict[str, Any]:
    seed = "all" if finding.seed is None else str(finding.seed)
    return {"number": finding.number, "flag": finding.flag, "cell": finding.cell, "seed": seed, "why": finding.said}
