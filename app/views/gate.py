"""The gate's verdicts on a run, and the metrics of its suite over time."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from fedguard.app import data
from fedguard.app.charts.gate import drops, trend
from fedguard.app.here import PageContext, empty, plain
from fedguard.app.trends import SAID, commit_of, points
from fedguard.bench.gate.baseline import read
from fedguard.bench.gate.reports import HEADS, NOTE, row
from fedguard.bench.gate.verdict import PASSED, REGRESSED, GateVerdict, Judgment, SuiteJudgment
from fedguard.bench.gate.verdict_store import verdicts
from fedguard.bench.records.reading import DamagedFile
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run
from fedguard.errors import FedGuardError
from fedguard.metrics.figures import FIGURES

_TROUBLE = {"regressed": "Regressed", "missing": "Could not be judged", "inconclusive": "Inconclusive"}


def show(here: PageContext) -> None:
    """The latest verdict on the chosen run, all verdicts, trends, and a baseline's history."""
    if here.name is None:
        empty(f"There is no run yet in {here.store.name}.", "fedguard run examples/quick.yaml")
        return
    broken: list[DamagedFile] = []
    said = verdicts(RunFolder(here.store / here.name), broken.append)
    for one in broken:
        st.warning("A verdict cannot be read and is left out.", icon=":material/warning:")
        plain(str(one))
    if said:
        _verdict(_one_of(said))
    else:
        st.info("The gate has not judged this run yet. To have it judged:")
        for command in commands(here.name, here.store):
            st.code(command, language="sh")
    _trends(here)
    _baseline()


def commands(name: str, store: Path) -> tuple[str, str]:
    """The commands that make a verdict, valid in any working directory."""
    there = shlex.join(["--store", str(store)])
    return (
        f"fedguard baseline save {shlex.quote(name)} --to baseline.json {there}",
        f"fedguard gate {shlex.quote(name)} --baseline baseline.json {there}",
    )


def _one_of(said: Sequence[GateVerdict]) -> GateVerdict:
    """The latest verdict, or another one that the reader selects."""
    if len(said) == 1:
        return said[-1]
    latest_first = {f"{_date(one.time)}: {SAID[one.exit_code]}": one for one in reversed(said)}
    return latest_first[st.selectbox("Verdict", list(latest_first), key="verdict", bind="query-params")]


def _verdict(verdict: GateVerdict) -> None:
    """The verdict by importance: the word, what all cells share, the failing cells, and the rest folded."""
    if verdict.exit_code == PASSED:
        st.success("**Passed**", icon=":material/check_circle:")
    elif verdict.exit_code == REGRESSED:
        st.error("**Regressed**", icon=":material/trending_down:")
    else:
        st.warning("**Cannot judge**", icon=":material/help:")
    st.text(verdict.headline)
    for one in verdict.lost_seeds:
        st.warning("A seed is ruined.", icon=":material/warning:")
        plain(f"{one.label}, {FIGURES[one.figure].title}: {one.lost_seed}")
    st.text(
        f"{verdict.run}, commit {verdict.commit or 'unknown'}, against {verdict.baseline}, commit "
        f"{verdict.baseline_commit or 'unknown'}; judged on {_date(verdict.time)}."
    )
    for line in verdict.incompatible:
        plain(line)
    if verdict.broad:
        st.subheader("Over the whole suite")
        st.dataframe([_broad_row(one) for one in verdict.broad], hide_index=True)
    for word, heading in _TROUBLE.items():
        _judgments(heading, [one for one in verdict.judgments if one.verdict == word])
    if verdict.audits:
        st.subheader("Audits of the epsilons")
        st.dataframe([_audit_row(one) for one in verdict.audits], hide_index=True)
    if verdict.warnings:
        st.subheader("What differs and need not matter")
        for line in verdict.warnings:
            plain(line)
    charts = drops(verdict)
    if charts:
        st.subheader("How much worse, beside how much is allowed")
    for figure, chart in charts.items():
        st.altair_chart(chart, width="stretch", key=f"drops {figure}", alt=f"Drops of {figure} and their margins.")
    st.caption(NOTE)
    with st.expander(f"All {len(verdict.judgments)} judgments"):
        st.dataframe(
            [{**dict(zip(HEADS, row(one), strict=True)), "why": one.why} for one in verdict.judgments], hide_index=True
        )


def _judgments(heading: str, found: Sequence[Judgment]) -> None:
    if not found:
        return
    st.subheader(f"{heading} ({len(found)})")
    st.dataframe([dict(zip(HEADS, row(one), strict=True)) for one in found], hide_index=True)
    for line in reason_lines([(one.swept, one.why) for one in found], "cells"):
        plain(line)


def _broad_row(one: SuiteJudgment) -> dict[str, str]:
    return {
        "verdict": one.verdict,
        "figure": FIGURES[one.figure].title,
        "mean drop": "" if one.drop is None else FIGURES[one.figure].difference(one.drop),
        "p": "" if one.p_value is None else f"{one.p_value:.2g}",
        "cells": str(one.cells),
        "seeds": str(one.seeds),
        "why": one.why,
    }


def _audit_row(one: Mapping[str, Any]) -> dict[str, str]:
    """The main facts of an audit; its record holds the rest."""
    bound, cells = (one.get("bound") or {}).get("epsilon"), one.get("cells") or ()
    return {
        "verdict": str(one["verdict"]),
        "of": str(one.get("subject", "-")),
        "claimed epsilon": "-" if one.get("claimed") is None else f"{one['claimed']:.4g}",
        "lower bound": "-" if bound is None else f"{bound:.4g}",
        "in words": str(one.get("words", "")),
        "cells": ", ".join(str(cell) or "every cell" for cell in cells),
    }


def _trends(here: PageContext) -> None:
    """Every run of the store whose suite has the same name."""
    chosen = here.run()
    st.subheader("Over time")
    same = _same_suite(here, chosen)
    known = chosen.figures
    if not known:
        st.text("This run has no metrics yet.")
        return
    figure = st.selectbox("Metric", known, key="trend", bind="query-params", help="The runs of suites of this name.")
    found = points([(run, verdicts(run.folder)) for run in same], figure)
    if found:
        st.altair_chart(
            trend(found, figure), width="stretch", key="trend chart", alt=f"{figure} of each run over time."
        )
    st.caption(
        f"{FIGURES[figure].heading}: the mean over all cells that have it on every seed, and the worst of them; bars are "
        "95 % intervals over seeds. A line joins runs of the same cells: another configuration "
        "has a line of its own."
    )
    st.dataframe(
        [
            {
                "run": run.name,
                "started (UTC)": _date(run.manifest.get("started", 0.0)),
                "commit": commit_of(run),
                "gate": " ".join(one.headline for one in verdicts(run.folder)[-1:]) or "not judged",
            }
            for run in same
        ],
        hide_index=True,
    )


def _same_suite(here: PageContext, chosen: Run) -> list[Run]:
    """Runs of the same suite, the oldest first."""
    found = []
    for name in data.run_names(here.store):
        try:
            run = data.open_run(here.store, name)
        except FedGuardError:  # Overview tells of runs that cannot be read
            continue
        if run.manifest.get("name") == chosen.manifest.get("name"):
            found.append(run)
    return sorted(found, key=lambda run: float(run.manifest.get("started", 0.0)))


def _baseline() -> None:
    """The history of a baseline, from a file that the reader names."""
    st.subheader("A baseline's history")
    path = st.text_input(
        "Read a baseline file",
        placeholder="baseline.json",
        help="A path on the machine on which the dashboard runs; Enter shows what changed in it, when and why.",
    )
    if not path:
        return
    try:
        baseline = read(path)
    except FedGuardError as error:
        plain(str(error))
        return
    st.text(
        f"{baseline.snapshot.suite}: {len(baseline.snapshot.positions)} positions, saved on {_date(baseline.created)}, "
        f"commit {baseline.snapshot.commit or 'unknown'}."
    )
    for change in reversed(baseline.history):
        st.text(f"{_date(change.time)}, commit {change.commit or 'unknown'}: {change.reason}")
        for line in change.changes:
            plain(line)


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
