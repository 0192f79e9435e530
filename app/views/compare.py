"""Two runs, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pandas as pd
import streamlit as st

from fedguard.app import address, data
from fedguard.app.charts.compare import compare as chart
from fedguard.app.here import PageContext, empty, plain
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.compare import comparable, compare
from fedguard.bench.results.comparison import P_SAID, Comparison, Difference, IncomparablePosition, sentence
from fedguard.bench.results.matrix import MatrixEntry
from fedguard.bench.results.run import Run
from fedguard.errors import StoreError
from fedguard.metrics.figures import FIGURES


def show(here: PageContext) -> None:
    """The differences of this run from another one: chart, table, configurations, and what could not be compared."""
    run = here.run()
    others = [name for name in data.run_names(here.store) if name != here.name]
    if not others:
        empty("This is the only run, and it takes two.", "fedguard run SUITE --name other")
        return
    left, right = st.columns(2)
    says = "The run of the sidebar is held against it."
    missing = "There is no such run to compare with; another one is taken. The link asks for:"
    alike = None if st.query_params.get("other") in others else _comparable(here, run, others)
    other = address.menu("Compare with", others, "other", place=left, help=says, missing=missing, default=alike)
    against = data.open_run(here.store, other)
    figures = _figures(against, run)
    if not figures:
        st.info("The two runs have no metric in common.")
        return
    figure = address.menu("Metric", figures, "figure", titles=lambda key: FIGURES[key].title, place=right)
    found = compare(against, run, figure)
    plain(f"a: {found.a}\nb: {found.b}")
    if found.warnings:
        st.warning("The runs were not made alike, so a difference may come from that:")
        plain("\n".join(found.warnings))
    _differences(found, figure)
    _settings(found)
    _apart(found.apart)


def _comparable(here: PageContext, run: Run, others: Sequence[str]) -> str | None:
    """The latest of the other runs that shares a position with this one; a note if there is none."""
    for name in others:
        with suppress(StoreError):
            if comparable(data.open_run(here.store, name), run):
                return name
    st.info(
        "No other run of this store has a position in common with this one: the same attack, defense and swept values, "
        "run in both. Run the suite again under another name, with what you want to compare changed:"
    )
    st.code("fedguard run SUITE --name other --set KEY=VALUE", language="sh")
    return None


def _figures(a: Run, b: Run) -> list[str]:
    """The metrics that both runs have."""
    return [figure for figure in a.figures if figure in b.figures]


def _differences(found: Comparison, figure: str) -> None:
    if not found.differences:
        st.info("No position could be compared; why, stands below.")
        return
    for one in found.broad:
        plain(f"{sentence(one.words())}.")
    if any(one.paired for one in found.differences):
        st.altair_chart(
            chart(found, figure),
            width="stretch",
            alt="Differences between the two runs with intervals, one line for each position; the table below holds "
            "the same.",
        )
    else:
        st.info("The runs have no seed in common, so nothing is paired and nothing is tested.")
    st.dataframe(pd.DataFrame([_row(one, found) for one in found.differences]), hide_index=True, width="stretch")
    st.caption(f"Means over common seeds, what changed most first. p: {P_SAID}")


def _row(one: Difference, found: Comparison) -> dict[str, object]:
    known = FIGURES[one.figure]
    unit = f", {known.unit}" if known.unit else ""
    return {
        **one.swept,
        f"{found.a}{unit}": MatrixEntry(one.a, "ok", known).text(),
        f"{found.b}{unit}": MatrixEntry(one.b, "ok", known).text(),
        f"{found.b} against {found.a}": one.words(),
        "p": one.p_adjusted,
        "pairs": len(one.seeds),
    }


def _settings(found: Comparison) -> None:
    st.subheader("What differs in their configurations")
    if not found.settings:
        st.text("Nothing, at the positions that both have.")
        return
    rows = [
        {"key": one.key, f"in {found.a}": one.a, f"in {found.b}": one.b, "positions": str(one.positions or "all")}
        for one in found.settings
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True)


def _apart(apart: Sequence[IncomparablePosition]) -> None:
    if not apart:
        return
    st.subheader("Not compared, and why")
    for line in reason_lines(((one.swept, one.why) for one in apart), "positions"):
        plain(line)
