"""The result of a composed cell, beside the other three controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedguard.app import data
from fedguard.app.charts.live import live
from fedguard.app.here import PageContext
from fedguard.app.lab.composition_check import CompositionCheck
from fedguard.app.lab.live import words
from fedguard.bench.pages.escape import markdown
from fedguard.bench.records.record import curve
from fedguard.bench.records.schema.result import Measured
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, default_figures
from fedguard.metrics.returns import in_shares
from fedguard.metrics.stats import ENOUGH, bracket, compare_pairs


def curves(here: PageContext, name: str, found: CompositionCheck) -> None:
    """Stored trials of a cell: distance from a model without attack, and accuracy or returns over the rounds."""
    run = data.open_run(here.store, name)
    rows = _of_cell(run, found)
    stored = [row for row in rows if row["status"] != "missing"]
    if len(stored) < len(rows):
        st.info(f"{len(stored)} of {len(rows)} seeds of this cell are stored. Run goes on where it stopped.")
    if lost := against_clean(run, found.cell):
        st.markdown(f"##### {markdown(lost)}")
    if drawn := _points(run, found.measure):
        chart = live(drawn, _rounds(run), found.measure)
        st.altair_chart(chart, width="stretch", key="curves", alt=words(found.measure))


def result(here: PageContext, name: str, found: CompositionCheck) -> None:
    """The scorecard of the stored trials of a run."""
    run = data.open_run(here.store, name)
    rows = _of_cell(run, found)
    st.header("What came out")
    for row in rows:
        if row["status"] not in ("ok", "missing"):
            st.error(f"Seed {row['seed']}: {row['status']}")
            st.code(row["reason"], language=None, wrap_lines=True)
    _figures(rows)
    if not _points(run, found.measure):
        return
    final = "return" if found.measure == "returns" else "accuracy"
    st.caption(f"The final {final} is the mean of the last five evaluations, not the best and not the last.")
    st.dataframe(controls(run), hide_index=True)
    _flags(run, found.cell)
    first, second, _ = st.columns([1, 1, 2])
    with first:
        here.link("matrix", "This run in the Matrix", run=name)
    with second:
        here.link("cell", "This cell", run=name, attack=found.attack, defense=found.defense)


def _of_cell(run: Run, found: CompositionCheck) -> list[dict[str, Any]]:
    return [row for row in run.rows() if (row["attack"], row["defense"]) == (found.attack, found.defense)]


def controls(run: Run) -> list[dict[str, Any]]:
    """One row for each position: its metrics as mean and 95 % interval over seeds, with their units."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in run.rows():
        found.setdefault((row["attack"], row["defense"]), []).append(row)
    table = [
        {"attack": attack, "defense": defense, "seeds": _status(rows), **_texts(rows)}
        for (attack, defense), rows in found.items()
    ]
    headings = dict.fromkeys(heading for row in table for heading in row)
    return [{heading: row.get(heading, "-") for heading in headings} for row in table]


def against_clean(run: Run, cell: str) -> str:
    """Difference of a cell's final accuracy from the mean without attack, seed by seed; empty if this was not run."""
    results = [in_shares(record["result"]) for (one, _), record in run.ran.items() if one == cell]
    pairs = [(one["final_accuracy"], one["controls"]["clean_mean"]) for one in results]
    lost = [100 * (accuracy - clean) for accuracy, clean in pairs if clean is not None]
    if not pairs or len(lost) < len(pairs):
        return ""
    found = compare_pairs(lost)
    few = found.half_width is None or found.pairs < ENOUGH
    ends = "" if few else f" {bracket(found.mean, found.half_width or 0.0, '+.1f')}"
    over = f"{found.pairs} {'seed' if found.pairs == 1 else 'seeds'}"
    over = f"{over}: no interval worth the name" if few else f"over {over}"
    return f"Final accuracy against the mean without attack: {found.mean:+.1f} points{ends}, {over}."


def _figures(rows: Sequence[Mapping[str, Any]]) -> None:
    texts = _texts(rows)
    for start in range(0, len(texts), 4):
        for column, (heading, text) in zip(st.columns(4), list(texts.items())[start : start + 4], strict=False):
            column.metric(heading, text)


def _texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics of a cell as text. An average over only those seeds that ran would be a different metric, so it has none."""
    if any(row["status"] != "ok" for row in rows):
        return {}
    texts = {}
    for name in default_figures("lab"):
        figure, values = FIGURES[name], [row[name] for row in rows if row[name] is not None]
        if values:
            texts[figure.title] = figure.format_with_unit(figure.estimate(values))
    return texts


def _status(rows: Sequence[Mapping[str, Any]]) -> str:
    """``3``, or the statuses of the seeds without values."""
    bad = list(dict.fromkeys(row["status"] for row in rows if row["status"] != "ok"))
    return f"{', '.join(bad)}" if bad else str(len(rows))


def _flags(run: Run, cell: str) -> None:
    flags = dict.fromkeys(
        (flag["flag"], flag["said"])
        for (one, _), record in run.records.items()
        if one == cell
        for flag in record["flags"]
    )
    if flags:
        st.markdown("**Red flags**")
        st.dataframe([{"flag": flag, "why": said} for flag, said in flags], hide_index=True)


def _points(run: Run, measure: Measured) -> list[dict[str, Any]]:
    return [
        {"cell": record["label"], "seed": record["seed"], "round": at, "value": value}
        for record in run.records.values()
        for at, value in curve(record, measure)
    ]


def _rounds(run: Run) -> int:
    """Number of rounds of the whole training."""
    return max((record["config"]["training"]["rounds"] for record in run.records.values()), default=1)
