"""Compose one cell, see at once whether it is legal, run it with live curves, and export it as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fedguard.app.here import PageContext, plain
from fedguard.app.lab.composition import as_yaml
from fedguard.app.lab.composition_check import CompositionCheck, judge_composition
from fedguard.app.lab.live import run
from fedguard.app.lab.menus import read_menus
from fedguard.app.lab.result import curves, result

#: Height of the menus in pixels; they scroll separately, so that verdict, Run and curves remain visible beside them
_MENUS = 640


def show(here: PageContext) -> None:
    """Menus on the left; beside them the verdict, Run, and the curves; below, who sees what, the suite, and the result."""
    menus, answer = st.columns([2, 3])
    with menus.container(height=_MENUS, border=False):
        suite = read_menus().suite()
    found = judge_composition(suite)
    stored = found.legal and (here.store / suite["name"] / "manifest.json").is_file()
    with answer:
        _verdict(found)
        if _ask_for_run(found):
            run(suite, here.store, found.rounds, found.measure)
            stored = False
        elif stored:
            curves(here, suite["name"], found)
        else:
            _assumptions(found)
    if stored:
        result(here, suite["name"], found)
        _assumptions(found)
    _suite(suite)


def _verdict(found: CompositionCheck) -> None:
    """Whether it may run, and if not, why."""
    if found.mistake:
        st.error("This cannot be laid out.", icon=":material/error:")
        plain(found.mistake)
        return
    if found.reasons:
        st.error("Refused.", icon=":material/block:")
        for reason in found.reasons:
            plain(reason)
        return
    st.success(f"{found.attack} against {found.defense} may run.", icon=":material/check_circle:")
    if found.unproven:
        st.warning("It runs, but outside of what was proven.", icon=":material/warning:")
        for line in found.unproven:
            plain(line)


def _assumptions(found: CompositionCheck) -> None:
    if found.words:
        st.subheader("Who sees what")
        for line in found.words:
            st.text(line)


def _suite(suite: Mapping[str, Any]) -> None:
    text = as_yaml(suite)
    st.subheader("The suite")
    st.code(text, language="yaml")
    st.download_button(
        "Download", text, file_name=f"{suite['name']}.yaml", on_click="ignore", icon=":material/download:"
    )


def _ask_for_run(found: CompositionCheck) -> bool:
    """The buttons; returns whether a run was requested in this script run."""
    with st.container(horizontal=True):
        asked = st.button(
            "Run",
            type="primary",
            disabled=not found.legal,
            icon=":material/play_arrow:",
            help="Real workers on this machine. What is stored is not run again.",
        )
        if asked:
            st.button("Stop", icon=":material/stop:")  # any click ends the script, and with it the workers
    if asked:
        st.caption(
            f"{found.trials} trials: this cell and the controls that it is compared with. Stop, another choice or leaving "
            "the page ends the workers; what is finished stays stored."
        )
    return asked
