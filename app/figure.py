"""The menu of metrics: those of a run, and the cost to reach a target that the reader sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from fedguard.app import address
from fedguard.bench.results.run import Run
from fedguard.metrics.figures import FIGURES, TargetMetric

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

#: Initial target, in percent
_TARGET = 80.0


def figure_menu(run: Run, place: DeltaGenerator | None = None) -> str:
    """The name of a metric, which is in the address too; a metric with a target has a field for it."""
    target = _target(address.read_choice("figure") or "")
    options = [*run.figures, *(f"{family}({target:g})" for family in run.to_target)] or ["final_accuracy"]
    figure = address.menu("Metric", options, "figure", titles=lambda name: FIGURES[name].heading, place=place)
    if isinstance(FIGURES[figure], TargetMetric):
        box = f"target of {figure}"
        draw = st.number_input if place is None else place.number_input
        draw("Target in %", 0.1, 100.0, 100 * target, 1.0, "%g", key=box, on_change=_follow, args=(figure, box))
    return figure


def _target(name: str) -> float:
    """The target in the name of a metric, if it has one."""
    if name in FIGURES and isinstance(known := FIGURES[name], TargetMetric):
        return known.target
    return _TARGET / 100


def _follow(figure: str, box: str) -> None:
    """Callback of the field: write the new target to the address."""
    st.query_params["figure"] = f"{figure.partition('(')[0]}({st.session_state[box] / 100:.6g})"
