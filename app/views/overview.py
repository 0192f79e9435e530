"""The runs of the store, the soundness of the chosen run, and its results."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from fedguard.app import address, data, words
from fedguard.app.charts.answer import answer, spans
from fedguard.app.data import Summary
from fedguard.app.here import PageContext, empty, plain
from fedguard.bench.records.reasons import reason_lines
from fedguard.bench.results.answer import RULE, standings
from fedguard.bench.results.places import label
from fedguard.bench.results.run import Run
from fedguard.errors import FedGuardError
from fedguard.metrics.stats import over_seeds

#: Statuses of a cell, in words
_STATUSES = {"ok": "cells ran", "refused": "refused, with reasons below", "failed": "failed", "missing": "missing"}


def show(here: PageContext) -> None:
    """The chosen run: health, main metrics, refusals and failures with their reasons, red flags; then all runs."""
    if here.name is None:
        empty(f"There is no run yet in {here.store.name}.", "fedguard run examples/quick.yaml")
        return
    known = {}
    try:
        run = here.run()
    except FedGuardError as error:
        st.error("The manifest of this run cannot be read.")
        plain(str(error))
    else:
        known[here.name] = data.sum_up(run)
        _of_run(here, run, known[here.name])
    _all_runs(here, known)


def _of_run(here: PageContext, run: Run, found: Summary) -> None:
    _health(found)
    _show_damage(here, run)
    _answer(run)
    _headlines(run)
    _show_refusals(run)
    if run.failures:
        _show_failures(run)
    _flags(run)


def _health(found: Summary) -> None:
    """One line; a warning if the run is incomplete or damaged."""
    told = ", ".join(f"{found.cells[status]} {word}" for status, word in _STATUSES.items() if found.cells[status])
    seeds = len(found.manifest["seeds"]) if found.manifest else 0
    each = f"A cell is one attack against one defense, with {seeds} {'seed' if seeds == 1 else 'seeds'} here."
    line = f"This run is {found.state}: {told}. {each}"
    if found.state == "complete":
        st.caption(line)
    else:
        st.warning(line)
    if found.cells["missing"]:
        st.caption("Run the suite again to go on where it stopped.")


def _answer(run: Run) -> None:
    """The verdict and the chart of one setting: by default the one with most values."""
    said = data.answers(run)
    settings = sorted(dict.fromkeys(run.table().blocks), key=lambda one: -len(spans(run, one)))
    if not settings or not spans(run, settings[0]):
        return
    chosen = settings[0]
    if len(settings) > 1:
        chosen = address.menu(words.escape_label(", ".join(run.swept)), settings, "setting")
    if chosen in said:
        st.markdown(f"##### {words.escape_label(said[chosen].headline)}")
        if behind := " ".join((*said[chosen].lead, said[chosen].action)).strip():
            st.markdown(words.escape_label(behind))
    chart = answer(spans(run, chosen), ranked=chosen not in said or said[chosen].ranked)
    st.altair_chart(
        chart, width="stretch", alt=f"{run.name}: what each defense keeps without attack and under its worst attacks"
    )


def _show_damage(here: PageContext, run: Run) -> None:
    if not run.broken:
        return
    st.warning(
        f"{len(run.broken)} damaged records are left out. Run the suite again: it sets them aside and replaces them."
    )
    resolved = shlex.quote(str(run.folder.path / "config.resolved.yaml"))
    name, store = shlex.quote(run.name), shlex.quote(str(here.store))
    st.code(f"fedguard run {resolved} --name {name} --store {store}", language="sh", wrap_lines=True)
    with st.expander("Which they are"):
        plain("\n".join(map(str, run.broken)))


def _headlines(run: Run) -> None:
    table = [one.texts() for one in standings(run)]
    columns = [name for name in table[0] if any(row[name] for row in table)] if table else []
    st.subheader("Defense by defense")
    st.caption(
        f"{over_seeds(len(run.seeds)).capitalize()}. {RULE} The worst attack is the one with the lowest mean. The "
        "robustness tax is what a defense costs where nobody attacks: the clean accuracy of the plain mean less its own."
    )
    st.dataframe([{name: row[name] for name in columns} for row in table], hide_index=True, width="stretch")


def _show_refusals(run: Run) -> None:
    rows = run.with_status("refused")
    if rows:
        st.subheader("Refused, and why")
        st.caption("These cells may not run: an attack or a defense would need to see what nobody shows it.")
        plain("\n".join(reason_lines([(run.place(row), str(row["reason"])) for row in _each_cell(rows, run)], "cells")))


@st.fragment
def _show_failures(run: Run) -> None:
    st.subheader("Failed")
    st.caption("`fedguard run SUITE --retry-failed` runs these trials again.")
    plain("\n".join(reason_lines([(one.place, one.reason) for one in run.failures], "trials")))
    trials = {f"{label(one.place)}, seed {one.seed}": one for one in run.failures}
    chosen = trials[st.selectbox("Log of", list(trials), key="failed")]
    path = run.folder.log_path(chosen.cell, chosen.seed)
    plain(str(path))
    with st.expander("The log's text"):
        plain(data.log_text(path))


def _flags(run: Run) -> None:
    found = data.flags(run)
    st.subheader("Red flags")
    if found.findings:
        st.caption(
            "By kind. A flag is no verdict: it says what must be said beside a number, or looked at before it is believed."
        )
        table = [
            {
                "flag": flag,
                "raised": len(cases),
                "cells": len({one.cell for one in cases}),
                "for example": f"{cases[0].cell}: {cases[0].said}",
            }
            for (_, flag), cases in found.flags().items()
        ]
        widths = {
            "flag": st.column_config.Column(width=140),
            "raised": st.column_config.Column(width=70),
            "cells": st.column_config.Column(width=70),
        }
        # High enough for the second and third line of the examples
        st.dataframe(table, hide_index=True, width="stretch", column_config=widths, row_height=72, height="content")
        with st.expander(f"Every one of them ({len(found.findings)})"):
            st.dataframe([asdict(one) for one in found.findings], hide_index=True, width="stretch")
    elif found.trials:
        st.text(f"None is raised on the {found.trials} trials that were judged.")
    else:
        st.text("No trial of the training has a result yet, so there is nothing to judge.")
    if found.not_judged:
        with st.expander("What could not be judged, and why"):
            st.dataframe([asdict(one) for one in found.not_judged], hide_index=True, width="stretch")


def _all_runs(here: PageContext, known: Mapping[str, Summary]) -> None:
    """All runs, last on the page, since reading a large store for the first time is slow."""
    st.subheader("All runs")
    st.caption("The sidebar chooses one.")
    with st.spinner("Reading the other runs ..."):
        runs = [known.get(name) or data.summary(here.store, name) for name in data.run_names(here.store)]
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


def _each_cell(rows: Sequence[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    """One row for each position of the matrix, without its seeds."""
    return list({data.label(row, run.swept): row for row in rows}.values())
