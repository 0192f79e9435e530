"""Runs a suite with live curves. If the page's script ends, the workers end too; finished trials stay stored."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from fedguard import api
from fedguard.app.charts.live import live
from fedguard.app.here import plain
from fedguard.bench.pages.cell_chart import MEASURES
from fedguard.bench.records.schema.result import Measured
from fedguard.bench.running.progress import Curve, Listener, Trial
from fedguard.errors import FedGuardError

#: Seconds between two drawings
EVERY = 0.5


def words(measure: Measured) -> str:
    """The alternative text of the chart."""
    return f"{MEASURES[measure].title} over the rounds, one line for each cell and seed"


class Curves(Listener):
    """Draws the progress that it receives.

    Streamlit ends a script by raising an exception from its next drawing call. So something is drawn each second, and the
    exception passes through `fedguard.api.run`, which ends its workers.
    """

    def __init__(self, rounds: int, measure: Measured) -> None:
        self._rounds = rounds
        self._measure: Measured = measure
        self._bar = st.progress(0.0, "The workers load their libraries, which takes some seconds ...")
        self._chart = st.empty()
        self._labels: dict[Trial, str] = {}
        self._points: list[dict[str, Any]] = []
        self._under_way: dict[Trial, float] = {}
        self._total = self._done = 0
        self._drawn = 0.0
        self.notes: list[str] = []

    def begin(self, total: int, stored: int, refused: int, jobs: int) -> None:
        self._total, self._done = total - refused, stored
        self._draw()

    def grew(self, trials: int) -> None:
        self._total += trials

    def note_start(self, trial: Trial, label: str) -> None:
        self._labels[trial] = label
        self._under_way[trial] = 0.0

    def note_progress(self, trial: Trial, round: int, rounds: int, scores: Curve) -> None:
        self._under_way[trial] = round / rounds
        self._points += [
            {"cell": self._labels[trial], "seed": trial[1], "round": at, "value": value} for at, value in scores
        ]
        self._draw()

    def note_record(self, record: Mapping[str, Any]) -> None:
        self._under_way.pop((record["cell"], record["seed"]), None)
        self._done += 1
        self._draw(now=self._done == self._total)

    def waiting(self) -> None:
        self._draw()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def clear(self) -> None:
        """Remove the bar, for a run that does not continue."""
        self._bar.empty()

    def _draw(self, now: bool = False) -> None:
        if not now and time.monotonic() - self._drawn < EVERY:
            return
        self._drawn = time.monotonic()
        share = (self._done + sum(self._under_way.values())) / max(1, self._total)
        self._bar.progress(min(1.0, share), f"{self._done} of {self._total} trials are stored.")
        if self._points:
            drawn = live(self._points, self._rounds, self._measure)
            self._chart.altair_chart(drawn, width="stretch", alt=words(self._measure))


def run(suite: Mapping[str, Any], store: Path, rounds: int, measure: Measured) -> None:
    """Run the missing part of a suite, and draw it; an error is shown as one line."""
    curves = Curves(rounds, measure)
    try:
        api.run(suite, store=store, listener=curves)
    except (FedGuardError, RuntimeError) as error:  # RuntimeError: a worker cannot even start
        curves.clear()
        st.error("The run has ended early. What is finished is stored.")
        plain(str(error))
        return
    for line in curves.notes:
        plain(line)
    if not curves.notes:
        st.rerun()  # the sidebar and the result know the run from the next drawing on
